

def test_evaluations_are_as_usual_for_the_environment() -> None:
    def evaluated(name: str, **evaluation: int) -> tuple[int, int]:
        algorithm = "plato" if name == "wildfire" else "gpl"
        data = {"name": "x", "algorithm": algorithm, "environment": {"name": name}, "evaluation": evaluation}
        found = ExperimentSettings.model_validate(data).evaluation
        return found.first_seed, found.episodes

    assert evaluated("wildfire") == (200, 50)
    assert evaluated("foraging") == (2500, 80)
    assert evaluated("wolfpack", episodes=3) == (2500, 3)
