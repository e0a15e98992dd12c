"""Pure torch pieces over ragged sets; nothing here knows Ray, and nothing is bounded by a number of agents or tasks."""
