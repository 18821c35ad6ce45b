"""The paper's formulas as pure functions of tensors, each in one place: open it to check the mathematics."""
