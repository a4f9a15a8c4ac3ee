"""Look-alikes: the same image again, brightened, compressed again or shifted slightly.

A perceptual hash keeps of an image only which of its low frequencies are stronger than the median
one: 63 bits that brightness, contrast and compression hardly change. Small, centred images (digits,
clothes) have similar hashes without being copies, so a hash only proposes candidates; the
correlation of the two images, slightly blurred and aligned at the best of a few shifts, decides.

Source: Lecture 3, "Splits and shift"; Zauner 2010 for the hash; ledger B22, T24.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOW = 8
"""Frequencies kept along each side; the mean is left out, so 63 bits remain (fewer below 8)."""
LARGEST = 32
"""Larger images are made so small first, their high frequencies left out."""
CANDIDATES = 10
"""Training images with the nearest hashes that are looked at themselves."""
CHUNK = 128
Hashes = NDArray[np.uint64]


def perceptual_hash(images: np.ndarray) -> Hashes:
    """One number [N], uint64: bit k says whether low frequency k is above the median one.

    Args:
        images: [N, H, W], grey, on any scale; H and W at least 8.
    """
    from scipy import fft

    low = fft.dctn(images, axes=(1, 2), norm="ortho")[:, :LOW, :LOW].reshape(len(images), -1)[:, 1:]
    bits = low > np.median(low, axis=1, keepdims=True)
    return (bits * (np.uint64(1) << np.arange(bits.shape[1], dtype=np.uint64))).sum(
        1, dtype=np.uint64
    )


def grey(images: np.ndarray) -> np.ndarray:
    """[N, C, H, W] as [N, H, W] of at most 32 × 32, float64: channels averaged, fine detail out."""
    from scipy import fft

    images = images.astype(np.float64).mean(1)
    height, width = (min(side, LARGEST) for side in images.shape[1:])
    if (height, width) == images.shape[1:]:
        return images
    waves = fft.dctn(images, axes=(1, 2), norm="ortho")[:, :height, :width]
    return fft.idctn(waves, axes=(1, 2), norm="ortho")


def look_alikes(
    queries: np.ndarray, images: np.ndarray, *, skip_self: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Find for each query the image most like it, at the best of a few shifts.

    Shifts go up to a fourteenth of the side (1 pixel of 8 to 27, 2 of 28 to 32); a query's margin
    of that width is not compared.

    Args:
        queries: [Q, H, W] as `grey` gives them.
        images: [N, H, W], likewise.
        skip_self: The queries are the first of the images; none is compared with itself.

    Returns:
        1 - correlation [Q], 0 for the same image at a different brightness and contrast, and the
        index [Q] of the image. A query or image without contrast matches nothing (1).
    """
    queries, images = _softened(queries), _softened(images)
    margin = max(min(images.shape[1:]) // 14, 1)
    middle = _windows(images, margin)[margin * (2 * margin + 1) + margin]
    hashes, normed = perceptual_hash(middle), _normed(middle)
    unlike, index = np.empty(len(queries)), np.empty(len(queries), dtype=np.int64)
    for first in range(0, len(queries), CHUNK):
        part = slice(first, min(first + CHUNK, len(queries)))
        windows = _windows(queries[part], margin)
        distance = np.full((part.stop - first, len(images)), LOW * LOW, dtype=np.uint8)
        for window in windows:
            differing = np.bitwise_count(perceptual_hash(window)[:, None] ^ hashes)
            np.minimum(distance, differing, out=distance)
        if skip_self:
            distance[np.arange(part.stop - first), np.arange(first, part.stop)] = 255
        most = min(CANDIDATES, len(images) - skip_self)
        nearest = np.argpartition(distance, most - 1, axis=1)[:, :most]
        apart = np.ones(nearest.shape)
        for window in windows:
            like = np.einsum("qp,qcp->qc", _normed(window), normed[nearest])
            np.minimum(apart, 1 - like, out=apart)
        best, rows = apart.argmin(1), np.arange(len(nearest))
        unlike[part], index[part] = apart[rows, best], nearest[rows, best]
    return np.maximum(unlike, 0.0), index


def _softened(images: np.ndarray) -> np.ndarray:
    """Blurred by a 32nd of the side, which noise, compression and half a pixel's shift survive."""
    from scipy import ndimage

    sigma = min(images.shape[1:]) / 32
    return ndimage.gaussian_filter(images, (0, sigma, sigma), mode="nearest")


def _windows(images: np.ndarray, margin: int) -> list[np.ndarray]:
    """The images without their margin, seen through a window at each shift; the middle one too."""
    height, width = (side - 2 * margin for side in images.shape[1:])
    steps = range(2 * margin + 1)
    return [images[:, y : y + height, x : x + width] for y in steps for x in steps]


def _normed(images: np.ndarray) -> np.ndarray:
    """[N, P], mean 0 and length 1; without contrast, length 0."""
    rows = images.reshape(len(images), -1)
    rows = rows - rows.mean(1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    flat = length <= 1e-6 * np.abs(images).reshape(len(images), -1).max(1, keepdims=True)
    return np.where(flat, 0.0, rows / np.where(length > 0, length, 1.0))
