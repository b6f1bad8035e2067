"""The paper's tables and figures, from runs that can be killed, resumed and shared."""
