"""Sessions: changeable work that is delivered again later when it was not finished."""
