"""Dead letters: their headers, their publication, and those that no target has answered yet."""
