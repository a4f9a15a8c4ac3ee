"""The cases' measures against their definitions, and the disagreement they are made to show."""

import csv
import io
import json

import pytest
import torch

from course.analysis.loss_is_not_metric import (
    CASES,
    _retrieval,
    balanced,
    cases,
    contrastive_loss,
    imbalanced,
    ranking,
    regression,
)

SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_cannot_see_that_the_probabilities_are_worse(seed):
    case = balanced(seed=seed)
    trained, louder = case.models.values()
    assert case.winner("accuracy") is None and 0.6 < trained["accuracy"] < 0.95
    assert louder["ECE"] > trained["ECE"] and louder["cross-entropy"] > trained["cross-entropy"]


@pytest.mark.parametrize("seed", SEEDS)
def test_always_no_is_accurate_and_the_plain_loss_finds_less(seed):
    case = imbalanced(seed=seed)
    no, plain, weighted = case.models.values()
    assert no["accuracy"] > 0.89 and no["F1"] == no["recall"] == 0 and no["AUROC"] == 0.5
    assert case.winner("cross-entropy") == "plain loss"
    assert weighted["recall"] > plain["recall"] + 0.1
    assert "recall" in case.disagree


def test_the_base_rates_cross_entropy_is_the_entropy_of_the_classes():
    value = imbalanced().models["always no"]["cross-entropy"]
    share = torch.tensor([0.1, 0.9])
    assert value == pytest.approx(-(share * share.log()).sum().item(), abs=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_loss_is_lowest_where_it_was_fitted_and_squares_lose_on_clean_data(seed):
    case = regression(seed=seed)
    assert case.winner("training MSE") == "least squares"  # whatever the data: it is the optimum
    assert case.winner("training MAE") == "least absolute"
    assert {case.winner(m) for m in ("RMSE", "MAE", "R²")} == {"least absolute"}


@pytest.mark.parametrize("seed", SEEDS)
def test_scaling_moves_the_loss_and_no_rank(seed):
    case = ranking(seed=seed, num_queries=60)
    wide, scaled, narrow = case.models.values()
    assert scaled["contrastive loss"] < 0.1 * wide["contrastive loss"]
    assert scaled["recall@1"] == wide["recall@1"] > 0.9
    assert scaled["MRR"] == pytest.approx(wide["MRR"], abs=1e-6)
    assert narrow["contrastive loss"] < scaled["contrastive loss"]
    assert narrow["recall@1"] < wide["recall@1"] and narrow["MRR"] < wide["MRR"]


def test_recall_and_reciprocal_rank_of_lists_ranked_by_hand():
    distances = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.2, 0.3, 0.1]])
    same = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 0, 0]]).bool()  # found at rank 1, 3 and 2
    said = _retrieval(distances, same)
    assert said["recall@1"] == pytest.approx(1 / 3)
    assert said["MRR"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)


def test_contrastive_loss_by_hand():
    # one pair of a class at 0.5: 0.25; others at 0.2 and 3: 0.8² and 0, mean 0.32
    loss = contrastive_loss(torch.tensor([[0.5, 0.2, 3.0]]), torch.tensor([[True, False, False]]))
    assert loss.item() == pytest.approx((0.25 + 0.32) / 2)


def test_a_case_prints_and_goes_to_json_csv_html_and_a_figure():
    assert [case.title for case in cases()] == [make().title for make in CASES.values()]
    case = regression()
    assert str(case).count("*") == 6  # five measures and the legend
    assert json.loads(json.dumps(case.to_json()))["winners"]["training MSE"] == "least squares"
    rows = list(csv.DictReader(io.StringIO(case.to_csv())))
    assert float(rows[1]["MAE"]) == case.models["least absolute"]["MAE"]
    assert case._repr_html_().count("<b>") == 5
    assert len(case.plot().axes) == 5
    with pytest.raises(ValueError, match="no measure 'loss'; the measures are training MSE"):
        case.winner("loss")


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_twice_and_another_with_another_seed(name):
    first = CASES[name](seed=0)
    assert first == CASES[name](seed=0)
    assert first.models != CASES[name](seed=1).models
