"""A biased sample, least squares with and without the selection screen, and why a column was
dropped.
"""

from pathlib import Path

from sklearn.linear_model import LinearRegression

from pfdl.data import make_mmads
from pfdl.tabular import ScreenedRegressor
from pfdl.tabular.metrics import rmse


def main() -> None:
    train = make_mmads(n=2000, p=10, r=1.7, setting="v_to_s", seed=0)
    table = train.frame().drop(columns="y")
    plain, stable = LinearRegression().fit(table, train.y), ScreenedRegressor().fit(table, train.y)

    print(stable.explain().round(2).to_string())
    print("\nV1:", stable.screen_.suspects_.loc["V1", "reason"])
    print(f"\nVerdict: {stable.verdict_}\n\nRMSE where the bias has another strength or direction:")
    for r in (1.7, 1.3, -1.3, -1.7):
        test = make_mmads(n=5000, p=10, r=r, setting="v_to_s", seed=1)
        errors = [
            rmse(test.y, model.predict(test.frame().drop(columns="y"))) for model in (plain, stable)
        ]
        print(f"  r = {r:4}: OLS {errors[0]:.3f}, screened {errors[1]:.3f}")

    picture = Path("tabular_explanation.png")
    stable.screen_.plot().figure.savefig(picture, dpi=120)
    print(f"\nThe reasons as a picture: {picture}")


if __name__ == "__main__":
    main()
