"""The agent's side of HITL Protocol: when a service answers 202 and asks for a person."""
