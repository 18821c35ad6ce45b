"""What a fitted model answers: topics, proportions, draws, scores, and exports to other tools."""
