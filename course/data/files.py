"""Image files: a data set read from disk, and a scan that names each bad file before training.

Among thousands of files a few are usually bad: an incomplete download, a grey image among colour
images, a path changed by a spreadsheet. One such file ends a run after hours, or is silently turned
into something else. So all are opened once beforehand, and each bad one is named with the reason.

What a scan cannot see: flipped bits where the format has no checksums (a JPEG decodes on), and a
wrong label.

Source: Lecture 3, "Dataset" and the rung "inspect the data"; ledger C16, T02, X25.
"""

from __future__ import annotations

import html
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

OnError = Literal["raise", "skip"]
FIXES = {
    "missing": "compare the list with the folder: was it moved or renamed, or is the current "
    "folder a different one?",
    "directory": "list the files in it instead",
    "not-a-file": "leave it out: it is a pipe, a socket or a device",
    "unreadable": "check its permissions and the disk",
    "empty": "download it again: it has 0 bytes",
    "not-an-image": "leave it out of the list, or download it again",
    "truncated": "download it again: its end is missing",
    "corrupt": "download it again: its bytes do not decode",
    "too-large": "make it smaller once, on disk, if it really is an image",
    "wrong-mode": "ImageFiles(..., convert=True), or convert it once, on disk",
    "wrong-depth": "scale it to 8 bits once, on disk; a conversion would clip it at 255",
    "wrong-extension": "rename it: programs that go by the file name will open it wrongly",
}
"""Each reason for which a file is bad, and the first thing to try."""
CONVERTIBLE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV")
"""Modes of at most 8 bits a channel. Deeper ones are not here: Pillow would clip them at 255."""
SAME_FORMAT = {"MPO": "JPEG"}  # a phone's JPEG with a second picture behind the first
_pillow = threading.Lock()


class ImageFileError(ValueError):
    """Image files are bad; the message names each by path and reason."""


@dataclass(frozen=True, kw_only=True)
class FileFault:
    """One bad file."""

    index: int
    """Its position in the list of paths."""
    path: str
    reason: str
    """A key of `FIXES`."""
    seen: str
    """What was found there."""

    @property
    def fix(self) -> str:
        """The first thing to try."""
        return FIXES[self.reason]

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}: {self.seen}. Try: {self.fix}"


@dataclass(frozen=True, kw_only=True)
class ImageScan:
    """The result of scanning image files.

    A file with a wrong extension is listed among the faults, but can be used.
    """

    num_files: int
    faults: tuple[FileFault, ...]
    """In the order of the paths, at most one per file."""
    modes: dict[str, int] = field(default_factory=dict)
    """Number of decodable files per mode, such as `RGB` or `L`."""
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Likewise (width, height) in pixels."""

    @property
    def ok(self) -> bool:
        """True if no file has a fault."""
        return not self.faults

    @property
    def good(self) -> list[int]:
        """Indices of the files that can be used, in order."""
        bad = {fault.index for fault in self.faults if fault.reason != "wrong-extension"}
        return [index for index in range(self.num_files) if index not in bad]

    @property
    def reasons(self) -> dict[str, int]:
        """How many files are bad for which reason, the most frequent first."""
        return dict(Counter(fault.reason for fault in self.faults).most_common())

    def raise_if_bad(self) -> None:
        """Raise if any file is bad.

        Raises:
            ImageFileError: Some are not; the message counts the reasons and names the first.
        """
        if self.faults:
            raise ImageFileError(f"{self}\nTo continue without them: on_error='skip'.")

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings and lists only."""
        return {
            "num_files": self.num_files,
            "num_bad": len(self.faults),
            "reasons": self.reasons,
            "faults": [asdict(fault) | {"fix": fault.fix} for fault in self.faults],
            "modes": self.modes,
            "sizes": {f"{width}x{height}": num for (width, height), num in self.sizes.items()},
        }

    def __str__(self) -> str:
        if not self.faults:
            return f"all of {self.num_files:,} image files are sound"
        reasons = ", ".join(f"{num} {reason}" for reason, num in self.reasons.items())
        lines = [f"{len(self.faults):,} of {self.num_files:,} image files are bad: {reasons}"]
        lines += [f"  {fault}" for fault in self._first(20)]
        if len(self.faults) > len(lines) - 1:
            lines.append(f"  and {len(self.faults) - len(lines) + 1} more, see .faults")
        return "\n".join(lines)

    def _first(self, most: int) -> list[FileFault]:
        """Some of each reason, so that a frequent one does not hide a rare one."""
        share = max(most // max(len(self.reasons), 1), 1)
        shown: Counter[str] = Counter()
        first = []
        for fault in self.faults:
            shown[fault.reason] += 1
            if shown[fault.reason] <= share:
                first.append(fault)
        return first

    def _repr_html_(self) -> str:
        if self.ok:
            return f"<p>{html.escape(str(self))}</p>"
        rows = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(t)}</td>" for t in (f.path, f.reason, f.seen, f.fix))
            + "</tr>"
            for f in self._first(50)
        )
        head = "".join(f"<th>{t}</th>" for t in ("file", "reason", "seen", "fix"))
        first_line = html.escape(str(self).partition("\n")[0])
        return f"<p>{first_line}</p><table><tr>{head}</tr>{rows}</table>"


def scan_images(
    paths: Sequence[str | os.PathLike],
    *,
    mode: str | None = "RGB",
    convert: bool = False,
    num_threads: int | None = None,
) -> ImageScan:
    """Open and decode each file once, as training will, and say which are bad and why.

    Args:
        paths: Of image files, in the order of their labels.
        mode: What each should be: `RGB` (3 × 8 bits), `L` (grey) and so on, in Pillow's words;
            None accepts any.
        convert: Accept another mode where its conversion to `mode` loses no range: grey, palette,
            RGBA (its alpha is dropped), CMYK; never 16 bits a channel.
        num_threads: How many files to open at once; by default the number of cores, up to 8.

    Returns:
        The faults, and how often each mode and size occurs.

    Source: Lecture 3, "Dataset"; ledger C16.
    """
    names = [os.fspath(path) for path in paths]
    threads = num_threads or min(os.cpu_count() or 1, 8)
    with _no_half_images(), ThreadPoolExecutor(threads) as pool:
        found = list(
            pool.map(lambda item: _open(*item, mode, convert, scanning=True), enumerate(names))
        )
    decoded = [image for fault, image in found if image is not None]
    return ImageScan(
        num_files=len(names),
        faults=tuple(fault for fault, _ in found if fault is not None),
        modes=dict(Counter(mode for mode, _ in decoded).most_common()),
        sizes=dict(Counter(size for _, size in decoded).most_common()),
    )


class ImageFiles(Dataset):
    """Images read from files on demand, each with its label.

    Args:
        paths: Of image files.
        labels: As many class indices.
        mode, convert: As `scan_images` takes them.
        transform: Applied to the image, a Pillow image; without it, the image becomes a tensor [C,
            H, W], float32 in 0 .. 1.
        on_error: `raise`: a bad file ends the pass, with its path and reason, when it is read.
            `skip`: all files are scanned now, and those that cannot be used are left out together
            with their labels; `scan` says which. A file that goes bad later raises in either case,
            because leaving it out then would change every later batch.
        num_threads: Threads for that scan.

    Raises:
        ValueError: Paths and labels differ in number, or `on_error` is neither of the two.
        ImageFileError: No file is left after skipping.

    Source: Lecture 3, "Dataset"; ledger C16.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike],
        labels: Sequence[int] | Tensor,
        *,
        mode: str | None = "RGB",
        convert: bool = False,
        transform: Callable[[Any], Any] | None = None,
        on_error: OnError = "raise",
        num_threads: int | None = None,
    ) -> None:
        if len(paths) != len(labels):
            raise ValueError(
                f"{len(paths)} paths and {len(labels)} labels: expected the same number of both. "
                "Was one list sorted or filtered without the other?"
            )
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error = {on_error!r}: choose 'raise' or 'skip'.")
        self.paths = [os.fspath(path) for path in paths]
        self.labels = torch.as_tensor(labels)
        if self.labels.dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
            self.labels = self.labels.long()
        self.mode, self.convert, self.transform = mode, convert, transform
        self.scan: ImageScan | None = None
        if on_error == "skip":
            self._leave_out_bad(num_threads)

    @classmethod
    def from_folder(cls, root: str | os.PathLike, **options: Any) -> ImageFiles:
        """One class per subfolder of `root`, in the order of their names, which `.classes` lists.

        Each file of a subfolder counts, even one that is not an image: it is then reported as bad.

        Raises:
            ImageFileError: `root` is not a folder, or has no subfolder with files.
        """
        root = Path(root)
        if not root.is_dir():
            raise ImageFileError(f"{root} is not a folder. The current folder is {Path.cwd()}.")
        classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
        found = [
            (path, label)
            for label, name in enumerate(classes)
            for path in sorted((root / name).rglob("*"))
            if not path.is_dir()
        ]
        if not found:
            raise ImageFileError(
                f"{root} has {len(classes)} subfolders but no files in them: expected one folder "
                "per class, as in root/cat/1.png."
            )
        dataset = cls(*map(list, zip(*found, strict=True)), **options)
        dataset.classes = classes
        return dataset

    def _leave_out_bad(self, num_threads: int | None) -> None:
        self.scan = scan_images(
            self.paths, mode=self.mode, convert=self.convert, num_threads=num_threads
        )
        good = self.scan.good
        if not good:
            raise ImageFileError(f"no file is left to train on. {self.scan}")
        self.paths, self.labels = [self.paths[index] for index in good], self.labels[good]

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        """The image and its label.

        Raises:
            ImageFileError: The file is bad; the message holds its path and the reason.
        """
        fault, image = _open(index, self.paths[index], self.mode, self.convert)
        if fault is not None:
            before = " It was sound when scanned." if self.scan else ""
            raise ImageFileError(f"{fault}.{before} To leave bad files out: on_error='skip'.")
        image = as_tensor(image) if self.transform is None else self.transform(image)
        return image, self.labels[index]

    def __len__(self) -> int:
        return len(self.paths)


def as_tensor(image: Any) -> Tensor:
    """A Pillow image of 8 or 16 bits a channel as [C, H, W], float32 in 0 .. 1."""
    values = np.asarray(image)
    top = {"u1": 255, "u2": 65535, "b1": 1}.get(values.dtype.str[1:], 1)
    values = torch.from_numpy(values.astype(np.float32) / top)
    return values.unsqueeze(0) if values.ndim == 2 else values.permute(2, 0, 1).contiguous()


def _open(
    index: int, path: str, mode: str | None, convert: bool, *, scanning: bool = False
) -> tuple[FileFault | None, Any]:
    """The decoded image, or why there is none. Scanning gives (mode, size) instead of an image,
    also next to the faults of a file that decodes, and looks at its name as well."""
    from PIL import Image, UnidentifiedImageError

    def fault(reason: str, seen: str) -> FileFault:
        return FileFault(index=index, path=path, reason=reason, seen=seen)

    if seen := _no_file(path):
        return fault(*seen), None
    try:
        if scanning:
            _verify_checksums(path)
        with _no_half_images(), Image.open(path) as image:
            image.load()
    except (MemoryError, KeyboardInterrupt):
        raise
    except UnidentifiedImageError:
        return fault(
            "not-an-image", f"Pillow knows no image format that starts with {_start(path)}"
        ), None
    except PermissionError as error:
        return fault("unreadable", str(error.strerror)), None
    except Image.DecompressionBombError as error:
        return fault("too-large", str(error)), None
    except Exception as error:  # decoders raise SyntaxError, struct.error, zlib.error and others
        return fault(*_broken(error)), None

    about = (image.mode, image.size)
    if mode is not None and image.mode != mode:
        if image.mode not in CONVERTIBLE:
            return fault("wrong-depth", f"mode {image.mode} instead of {mode}"), about
        if not convert:
            return fault("wrong-mode", f"{image.mode} instead of {mode}"), about
    if not scanning:
        return None, image if mode in (None, image.mode) else image.convert(mode)
    named, is_really = _format_by_name(path), SAME_FORMAT.get(image.format, image.format)
    if named not in (None, is_really):
        said = Path(path).suffix
        return fault("wrong-extension", f"{is_really} data in a file named {said}"), about
    return None, about


def _verify_checksums(path: str) -> None:
    """Of a PNG, which has some that decoding does not look at."""
    from PIL import Image

    with Image.open(path) as image:
        if image.format == "PNG":
            image.verify()


def _broken(error: Exception) -> tuple[str, str]:
    """Reason and words for what a decoder raised."""
    words = " ".join(str(error).split()) or type(error).__name__
    cut = isinstance(error, EOFError) or "truncated" in words.lower()
    return "truncated" if cut else "corrupt", words


def _no_file(path: str) -> tuple[str, str] | None:
    """Why nothing can be read at a path; a pipe must not even be opened, or we would wait."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            return "missing", f"a link to {os.readlink(path)}, which does not exist"
        return "missing", "no such file"
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        return "unreadable", getattr(error, "strerror", None) or str(error)
    if stat.S_ISDIR(status.st_mode):
        return "directory", "a folder"
    if not stat.S_ISREG(status.st_mode):
        return "not-a-file", stat.filemode(status.st_mode)
    return None if status.st_size else ("empty", "0 bytes")


def _start(path: str) -> str:
    with open(path, "rb") as file:
        return repr(file.read(8))


def _format_by_name(path: str) -> str | None:
    """The format that a file's name promises; None where it has no extension."""
    from PIL import Image

    suffix = Path(path).suffix.lower()
    if not suffix:
        return None
    return Image.registered_extensions().get(suffix, "not an image")


@contextmanager
def _no_half_images() -> Iterator[None]:
    """Within, a truncated file raises, also where somebody told Pillow to fill it up with grey."""
    from PIL import ImageFile

    if not ImageFile.LOAD_TRUNCATED_IMAGES:
        yield
        return
    with _pillow:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        try:
            yield
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = True
