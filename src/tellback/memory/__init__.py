"""What is remembered of each user: spaces, atoms, entities, recall and the working context."""
