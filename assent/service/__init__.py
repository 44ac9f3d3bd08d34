"""The service side of HITL Protocol: cases over HTTP, the pages where people decide, and what follows."""
