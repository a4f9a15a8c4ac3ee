"""Each kind of bad file among thousands is named by path and reason, and labels stay aligned."""

from __future__ import annotations

import os
import pickle
import shutil
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch.utils.data import DataLoader

from course.data.files import FIXES, ImageFileError, ImageFiles, as_tensor, scan_images

rng = np.random.default_rng(0)


def picture(mode="RGB", side=16):
    return Image.fromarray(rng.integers(0, 255, (side, side, 3), dtype=np.uint8)).convert(mode)


def saved(path, mode="RGB", **options):
    picture(mode).save(path, **options)
    return path


def cut(path, share):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    return path


def flipped(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    return path


def pipe(path):
    os.mkfifo(path)
    return path


def linked(path):
    path.symlink_to("nowhere.png")
    return path


def folder(path):
    path.mkdir()
    return path


def written(path, data):
    path.write_bytes(data)
    return path


def sixteen_bits(path):
    Image.fromarray(rng.integers(0, 65535, (16, 16), dtype=np.uint16)).save(path)
    return path


BAD = {
    "gone.png": ("missing", lambda p: p),
    "link.png": ("missing", linked),
    "folder.png": ("directory", folder),
    "pipe.png": ("not-a-file", pipe),
    "empty.png": ("empty", lambda p: written(p, b"")),
    "text.jpg": ("not-an-image", lambda p: written(p, b"<html>404 Not Found</html>")),
    "half.png": ("truncated", lambda p: cut(saved(p), 0.5)),
    "half.jpg": ("truncated", lambda p: cut(saved(p), 0.9)),
    "half.bmp": ("truncated", lambda p: cut(saved(p), 0.9)),
    "flipped.png": ("corrupt", lambda p: flipped(saved(p))),
    "grey.png": ("wrong-mode", lambda p: saved(p, "L")),
    "palette.png": ("wrong-mode", lambda p: saved(p, "P")),
    "alpha.png": ("wrong-mode", lambda p: saved(p, "RGBA")),
    "print.jpg": ("wrong-mode", lambda p: saved(p, "CMYK")),
    "deep.png": ("wrong-depth", sixteen_bits),
    "named.jpg": ("wrong-extension", lambda p: saved(p, format="PNG")),
    "named.txt": ("wrong-extension", lambda p: saved(p, format="PNG")),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    root = tmp_path_factory.mktemp("good")
    formats = ("png", "jpg", "bmp", "webp", "PNG", "jpeg")
    return [saved(root / f"{number}.{formats[number % 6]}") for number in range(24)]


@pytest.mark.parametrize("name", BAD)
def test_each_kind_of_bad_file_is_named(name, tmp_path, good):
    reason, make = BAD[name]
    path = make(tmp_path / name)
    scan = scan_images([*good, path])
    assert [(f.index, f.path, f.reason) for f in scan.faults] == [(24, str(path), reason)]
    assert str(path) in str(scan) and FIXES[reason] in str(scan)
    with pytest.raises(ImageFileError, match=f"{name}: {reason}"):
        scan.raise_if_bad()


def test_sound_files_raise_no_alarm(good):
    scan = scan_images(good)
    assert scan.ok and scan.good == list(range(24)) and scan.modes == {"RGB": 24}
    assert str(scan) == "all of 24 image files are sound" and "sound" in scan._repr_html_()
    scan.raise_if_bad()


def test_bad_files_among_thousands_are_left_out_with_their_labels(tmp_path, good):
    paths = [tmp_path / f"{number}.png" for number in range(2000)]
    for number, path in enumerate(paths):  # each image's colour is its label
        Image.new("RGB", (8, 8), (number % 250, 0, 0)).save(path)
    bad = {7: "empty.png", 500: "half.png", 1203: "gone.png", 1999: "grey.png"}
    for number, name in bad.items():
        paths[number] = BAD[name][1](tmp_path / name)
    labels = [number % 250 for number in range(2000)]
    dataset = ImageFiles(paths, labels, on_error="skip")
    assert {fault.index for fault in dataset.scan.faults} == set(bad)
    assert dataset.scan.reasons == {"empty": 1, "truncated": 1, "missing": 1, "wrong-mode": 1}
    assert len(dataset) == len(dataset.labels) == 1996
    for images, targets in DataLoader(dataset, 499):
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long(), targets)


def test_a_bad_file_raises_with_its_path_when_read(tmp_path, good):
    paths = [*good[:3], BAD["half.png"][1](tmp_path / "half.png")]
    dataset = ImageFiles(paths, [0, 1, 0, 1])
    assert dataset[2][1] == 0
    with pytest.raises(ImageFileError, match=r"half\.png: truncated.*on_error='skip'"):
        dataset[3]


@pytest.mark.slow
def test_a_worker_hands_the_path_on(tmp_path, good):
    dataset = ImageFiles([*good[:3], tmp_path / "gone.png"], [0, 1, 0, 1])
    with pytest.raises(ImageFileError, match=r"gone\.png: missing"):
        list(DataLoader(dataset, 2, num_workers=1))


def test_a_file_that_goes_bad_after_the_scan_raises(tmp_path):
    paths = [saved(tmp_path / f"{number}.png") for number in range(3)]
    dataset = ImageFiles(paths, [0, 1, 2], on_error="skip")
    paths[1].unlink()
    with pytest.raises(ImageFileError, match=r"missing.*It was sound when scanned"):
        dataset[1]


def test_half_an_image_is_refused_though_pillow_was_told_to_fill_it(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    path = cut(saved(tmp_path / "half.jpg"), 0.9)
    assert scan_images([path]).reasons == {"truncated": 1}
    with pytest.raises(ImageFileError, match="truncated"):
        ImageFiles([path], [0])[0]
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_conversion_is_done_where_no_range_is_lost(tmp_path):
    names = ("grey.png", "palette.png", "alpha.png", "print.jpg", "deep.png")
    paths = [BAD[name][1](tmp_path / name) for name in names]
    scan = scan_images(paths, convert=True)
    assert scan.reasons == {"wrong-depth": 1} and scan.good == [0, 1, 2, 3]
    dataset = ImageFiles(paths[:4], [0, 1, 2, 3], convert=True)
    assert {tuple(image.shape) for image, _ in dataset} == {(3, 16, 16)}
    grey = torch.from_numpy(np.array(Image.open(paths[0]))).float() / 255
    assert torch.equal(dataset[0][0], grey.expand(3, 16, 16))


def test_modes_may_be_declared_or_left_open(tmp_path):
    grey, deep = saved(tmp_path / "grey.png", "L"), sixteen_bits(tmp_path / "deep.png")
    assert scan_images([grey], mode="L").ok
    assert scan_images([grey, deep], mode=None).modes == {"L": 1, "I;16": 1}
    image, _ = ImageFiles([deep], [0], mode=None)[0]
    assert image.shape == (1, 16, 16) and 0.5 < image.max() <= 1


def test_a_tensor_is_torchvisions(good):
    from torchvision.transforms.functional import to_tensor

    image = Image.open(good[0])
    assert torch.equal(as_tensor(image), to_tensor(image))


def test_a_transform_sees_the_pillow_image(good):
    dataset = ImageFiles(good, range(24), transform=lambda image: torch.tensor(image.size))
    assert dataset[3][0].tolist() == [16, 16] and dataset[3][1].dtype == torch.long


def test_folders_are_classes_and_every_file_in_them_counts(tmp_path, good):
    for number, name in enumerate(("dog", "cat")):
        (tmp_path / name).mkdir()
        for path in good[number * 2 : number * 2 + 2]:
            shutil.copy(path, tmp_path / name)
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"\0\1\2")
    dataset = ImageFiles.from_folder(tmp_path, on_error="skip")
    assert dataset.classes == ["cat", "dog"] and dataset.labels.tolist() == [0, 0, 1, 1]
    assert [fault.reason for fault in dataset.scan.faults] == ["not-an-image"]
    with pytest.raises(ImageFileError, match="is not a folder"):
        ImageFiles.from_folder(tmp_path / "nowhere")
    (tmp_path / "none" / "a").mkdir(parents=True)
    with pytest.raises(ImageFileError, match="1 subfolders but no files"):
        ImageFiles.from_folder(tmp_path / "none")


def test_what_cannot_be_meant_is_refused(tmp_path, good):
    with pytest.raises(ValueError, match="24 paths and 23 labels"):
        ImageFiles(good, range(23))
    with pytest.raises(ValueError, match="choose 'raise' or 'skip'"):
        ImageFiles(good, range(24), on_error="ignore")
    with pytest.raises(ImageFileError, match="no file is left"):
        ImageFiles([tmp_path / "gone.png"], [0], on_error="skip")


def test_a_frequent_reason_does_not_hide_a_rare_one(tmp_path):
    paths = [tmp_path / f"gone{number}.png" for number in range(300)]
    scan = scan_images([*paths, written(tmp_path / "a<b>.png", b"x")])
    assert "a<b>.png: not-an-image" in str(scan) and "290 more" in str(scan)
    assert "a&lt;b&gt;.png" in scan._repr_html_() and "<b>" not in scan._repr_html_()
    assert scan.to_json()["reasons"] == {"missing": 300, "not-an-image": 1}


def test_only_checksums_can_show_a_flipped_bit_in_stored_pixels(tmp_path):
    """A PNG whose pixels are stored, not deflated, decodes with a wrong pixel."""
    path = tmp_path / "stored.png"
    Image.new("L", (64, 64), 7).save(path, compress_level=0)
    raw = bytearray(path.read_bytes())
    start = raw.index(b"IDAT") + 4
    length = int.from_bytes(raw[start - 8 : start - 4], "big")
    assert zlib.crc32(raw[start - 4 : start + length]) == int.from_bytes(
        raw[start + length : start + length + 4], "big"
    )
    raw[start + length // 2] ^= 1
    path.write_bytes(raw)
    assert scan_images([path], mode="L").reasons == {"corrupt": 1}


def test_a_data_set_of_files_can_be_sent_to_a_worker(good):
    dataset = pickle.loads(pickle.dumps(ImageFiles(good, range(24), on_error="skip")))
    assert torch.equal(dataset[5][0], ImageFiles(good, range(24))[5][0])
