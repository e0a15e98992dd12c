"""GPL and CIAO: Q-learning for one agent whose teammates come and go, with a coordination graph over the team."""
