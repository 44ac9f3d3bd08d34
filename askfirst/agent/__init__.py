"""The fold: the loop, its gate, its tools and the live agent."""
