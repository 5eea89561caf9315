"""How a service is kept on a host."""
