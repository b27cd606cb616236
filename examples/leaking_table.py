"""Write patients.csv: measurements of 442 patients, the progression of their diabetes a year later,
and ``visits``, a column that was recorded in that year and so is an effect of what is predicted.

The measurements are real (scikit-learn's diabetes data); ``visits`` is made up.

Run: python examples/leaking_table.py
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression"})
rng = np.random.default_rng(0)
table["visits"] = (table["progression"] / 12 + rng.normal(0, 4, len(table))).clip(0).round()
table.to_csv("patients.csv", index=False)

columns = table.drop(columns="progression")
for name, used in {"with visits": columns, "without": columns.drop(columns="visits")}.items():
    score = cross_val_score(LinearRegression(), used, table["progression"]).mean()
    print(f"cross-validated R², {name}: {score:.2f}")
