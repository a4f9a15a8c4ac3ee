"""Control groups: where one may be made, what is written into it, what the kernel then does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograde.sandbox import control_group as cg
from autograde.sandbox import owner
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession

V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / {top}/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / {top}/pids rw,relatime shared:5 - cgroup cgroup rw,pids
41 31 0:38 / {top}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "30 23 0:26 / {top} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/term.scope"
BOMB = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        kept = b"1" * (40 * 2**20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""


def tree(top: Path, *groups: str, handed_down: str = "") -> None:
    """A version 2 tree made of plain files; `handed_down` names the group that hands down both."""
    for group in ("", *groups):
        folder = top / group
        folder.mkdir(parents=True, exist_ok=True)
        both = "cpu memory pids\n" if group == handed_down else "\n"
        (folder / "cgroup.subtree_control").write_text(both)


def second(top: Path, own: str) -> cg.Places | None:
    return cg._second_version(cg.mounted(V2_MOUNTS.format(top=top)), {"": own})


def test_trees_and_own_groups_are_read_from_proc():
    trees = cg.mounted(V1_MOUNTS.format(top="/sys/fs/cgroup"))
    assert trees == {
        "memory": ("/", Path("/sys/fs/cgroup/memory")),
        "pids": ("/", Path("/sys/fs/cgroup/pids")),
        "": ("/", Path("/sys/fs/cgroup/unified")),
    }
    own = cg.own_groups("4:memory:/jobs/7\n3:cpu,pids:/\n1:name=systemd:/a:b\n0::/x\n")
    assert own == {"memory": "/jobs/7", "cpu": "/", "pids": "/", "name=systemd": "/a:b", "": "/x"}


def test_a_users_groups_are_made_beside_the_terminals(tmp_path):
    """systemd hands both controllers down to app.slice; a group with processes cannot."""
    slice_ = str(Path(SCOPE).parent)
    tree(tmp_path, SCOPE, slice_, handed_down=slice_)
    assert second(tmp_path, f"/{SCOPE}") == cg.Places(
        2, dict.fromkeys((*cg.CONTROLLERS, *cg.WHERE_GIVEN), tmp_path / slice_)
    )


def test_the_nearest_group_is_taken_and_none_beyond_the_tree(tmp_path):
    inner = tmp_path / "sys" / "fs"
    tree(tmp_path, "sys", handed_down="")  # above the mount: not a group at all
    tree(inner, "a/b", handed_down="nowhere")
    assert second(inner, "/a/b") is None
    tree(inner, "a", "a/b", handed_down="a/b")
    assert second(inner, "/a/b").folders["memory"] == inner / "a/b"


def test_a_container_sees_its_part_of_the_tree(tmp_path):
    tree(tmp_path, "session", handed_down="session")
    mounts = f"30 23 0:26 /docker/4f {tmp_path} rw - cgroup2 cgroup rw\n"
    found = cg._second_version(cg.mounted(mounts), {"": "/docker/4f/session"})
    assert found.folders["pids"] == tmp_path / "session"


def test_a_group_that_may_not_be_written_is_passed_by(tmp_path, monkeypatch):
    tree(tmp_path, "a", "a/b", handed_down="a")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert second(tmp_path, "/a/b") is None


@pytest.mark.parametrize(("version", "files", "written"), [
    (2, ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"],
     {"memory.max": "300", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "9"}),
    (2, ["memory.max", "pids.max"], {"memory.max": "300", "pids.max": "9"}),
    (1, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max"],
     {"memory.limit_in_bytes": "300", "memory.memsw.limit_in_bytes": "300", "pids.max": "9"}),
])  # fmt: skip
def test_what_is_written_into_a_group(version, files, written, tmp_path, monkeypatch):
    """Of swap a kernel without it has no file; writing one would be an error there."""
    folders = dict.fromkeys(cg.CONTROLLERS, tmp_path)
    if version == 1:
        folders = {"memory": tmp_path / "m", "pids": tmp_path / "p"}
    make = Path.mkdir

    def mkdir(self, *args, **options):
        make(self, *args, **options)
        for name in files:
            (self / name).write_text("max")

    for folder in set(folders.values()):
        folder.mkdir(exist_ok=True)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = cg.ControlGroup._in(cg.Places(version, folders), "autograde-1-2-3-x", 300, 9)
    found = {}
    for folder in set(group.folders.values()):
        found |= {f.name: f.read_text() for f in folder.iterdir() if f.read_text() != "max"}
    assert found == written
    group.take()
    assert all((folder / "cgroup.procs").read_text() == "0" for folder in group.folders.values())


@pytest.mark.parametrize(("text", "out"), [
    ("low 0\noom 3\noom_kill 2\n", True), ("oom_kill 0\n", False),
    ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True), ("", False),
])  # fmt: skip
def test_whether_memory_ran_out_is_read_from_the_kernels_count(text, out, tmp_path):
    (tmp_path / "memory.events").write_text(text)
    group = cg.ControlGroup(cg.VERSIONS[2], dict.fromkeys(cg.CONTROLLERS, tmp_path))
    assert group.ran_out_of_memory() is out


def test_only_groups_of_dead_graders_are_swept(tmp_path, monkeypatch):
    if not sys.platform.startswith("linux"):
        pytest.skip("processes are told apart by Linux's /proc")
    me = owner.this_process()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    kept = [
        f"autograde-{me.pid}-{me.started}-{me.namespace}-a",
        f"autograde-{ended.pid}-1-{me.namespace + 1}-a",
        "autograde-notes",
    ]
    for name in (*kept, f"autograde-{ended.pid}-1-{me.namespace}-a"):
        (tmp_path / name).mkdir()
    places = cg.Places(2, dict.fromkeys(cg.CONTROLLERS, tmp_path))
    monkeypatch.setattr(cg, "_likely_places", lambda: places)
    cg.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_place_where_nothing_can_be_made_is_no_place(tmp_path, monkeypatch):
    places = cg.Places(2, dict.fromkeys(cg.CONTROLLERS, tmp_path / "none"))
    monkeypatch.setattr(cg, "_likely_places", lambda: places)
    cg.places.cache_clear()
    try:
        assert cg.places() is None
        assert cg.ControlGroup.made("x", memory_bytes=1, processes=1) is None
    finally:
        cg.places.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("by_kernel", [True, False])
def test_many_processes_together_are_stopped_at_the_limit(by_kernel, isolation):
    """1.6 GB in 40 processes, each far below the limit alone: by the group, and by the keeper."""
    if isolation.trusted:
        pytest.skip("this machine gives no isolation: see autograde protections")
    limits = Limits(cell_s=60.0, memory_bytes=2**30)  # the kernel first seeks memory to reclaim
    with StudentSession(None, limits, Isolation(control_groups=by_kernel)) as session:
        grouped = _group_of(session)
        if by_kernel and not grouped:
            pytest.skip("no control groups to be had here")
        assert bool(grouped) is by_kernel
        session.run(BOMB)
        assert "more than 1 GiB of memory" in session.ended
    assert not any(path.exists() for path in grouped)


def _group_of(session: StudentSession) -> list[Path]:
    """The groups of a session's process, as folders; none where the keeper counts."""
    found = cg._likely_places()
    folders = set(found.folders.values()) if found else set()
    return [path for f in folders if (path := f / session.folder.name).is_dir()]
