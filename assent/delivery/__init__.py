"""Ways to reach a person: one small protocol, and the deliveries that come with Assent."""
