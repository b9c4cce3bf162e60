"""The soak: many clients at once that misbehave in every allowed way, and the judgement of what came back."""
