"""Saliency is the steepest slope of a label's score, and leaves everything as it was."""

import torch
from torch import nn

from course.analysis.saliency import saliency


def test_of_a_linear_model_it_is_the_largest_weight_of_the_pixels_channels():
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 4, 5))
    labels = torch.tensor([4, 0])
    found = saliency(model, torch.randn(2, 2, 3, 4), labels)
    weights = model[1].weight.detach()[labels].view(2, 2, 3, 4)
    torch.testing.assert_close(found, weights.abs().amax(dim=1))
    assert not found.requires_grad


def test_it_is_the_finite_difference_of_the_score_in_every_pixel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(),
                          nn.Linear(12, 4)).double().eval()  # fmt: skip
    images, labels = torch.randn(2, 1, 3, 3, dtype=torch.float64), torch.tensor([1, 3])
    found = saliency(model, images, labels)
    for at in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(3)).tolist():
        b, h, w = at
        moved = torch.zeros_like(images)
        moved[b, 0, h, w] = 1e-6
        higher, lower = model(images + moved), model(images - moved)
        slope = (higher - lower)[b, labels[b]].item() / 2e-6
        assert abs(found[b, h, w].item() - abs(slope)) < 1e-6


def test_modes_gradients_and_images_are_as_before_also_under_no_grad():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    model[2].eval()
    images = torch.randn(3, 1, 2, 2)
    with torch.no_grad():
        first = saliency(model, images, torch.tensor([0, 1, 1]))
    assert torch.equal(first, saliency(model, images, torch.tensor([0, 1, 1])))
    assert [m.training for m in model] == [True, True, False, True]
    assert all(p.grad is None for p in model.parameters()) and not images.requires_grad
    assert model[1].num_batches_tracked == 0
