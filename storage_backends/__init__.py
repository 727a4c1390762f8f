"""Where payload bytes live: references, the backend Protocol and its implementations. Knows nothing of the service."""
