# SPDX-License-Identifier: MIT
"""Trees of files with odd names, modes, times and links, and manifests to compare them by."""
import os
import random
import stat

ODD = [b"plain", b"with space", b"two\nlines", b" leading", b"trailing ", b"-rf", b"--help", b"quote'\"", b"back\\slash",
       b"tab\there", b"star*?[x]", b"$HOME", b"`id`", b";rm", b"#hash", b"%41", b"+plus", b"&and", b"~", b"~user",
       "ümläut".encode(), "日本語".encode(), "\U0001f600".encode(), b"\xff\xfe", b"latin-\xe9", b"bell\a", b"del\x7f",
       b"n" * 255, b"x" * 101, b"y" * 154, b"...", b"..a", b".hidden", b"a=b", b"\x01", b"CON", b"e\xcc\x81"]


def make(root, files=2000, seed=1, fifo=True):
    """About `files` entries below root (bytes or str), which must not exist."""
    r = random.Random(seed)
    root = os.fsencode(root)
    os.mkdir(root)
    dirs, made = [root], 1
    for i in range(max(files // 12, 5)):
        parent = r.choice(dirs[-8:])
        name = r.choice(ODD) if i % 2 else b"d%d" % i
        path = os.path.join(parent, name)
        if len(path) - len(root) < 1500 and not os.path.lexists(path):
            os.mkdir(path)
            dirs.append(path)
            made += 1
    plain = []
    while made < files:
        parent = r.choice(dirs)
        path = os.path.join(parent, r.choice(ODD) + (b"" if r.random() < 0.3 else b"%d" % made))
        if len(os.path.basename(path)) > 255 or os.path.lexists(path):
            path = os.path.join(parent, b"f%d" % made)
        kind = r.random()
        if kind < 0.08:
            os.symlink(r.choice([b"plain", b"./x y", b"nowhere", os.path.basename(path)]), path)
        elif kind < 0.12 and plain:
            os.link(r.choice(plain), path)
        elif kind < 0.13 and fifo:
            os.mkfifo(path)
        else:
            with open(path, "wb") as f:
                f.write(r.randbytes(r.choice([0, 1, 511, 512, 513, 5000])))
            plain.append(path)
        made += 1
    for path in plain + [p for p in dirs if p != root]:
        os.chmod(path, r.choice([0o644, 0o600, 0o755, 0o777, 0o400] if path in set() or not os.path.isdir(path)
                                else [0o755, 0o700, 0o777, 0o555]))
    for path in plain:
        os.utime(path, ns=(0, r.choice([0, 1, 10**9, 1600000000 * 10**9 + 123456789, -1, -5 * 10**8, 2**33 * 10**9])))
    for path in sorted(dirs, key=len, reverse=True):
        os.utime(path, ns=(0, r.randrange(0, 1700000000 * 10**9)))
    return made


def manifest(root, times=True):
    """{relative name: what it is}, hard links as groups of names."""
    root = os.fsencode(root)
    out, groups = {}, {}
    for folder, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            rel = os.path.relpath(path, root)
            mtime = st.st_mtime_ns if times else 0
            if stat.S_ISLNK(st.st_mode):
                out[rel] = ("link", os.readlink(path))
            elif stat.S_ISDIR(st.st_mode):
                out[rel] = ("dir", oct(st.st_mode), mtime)
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    out[rel] = ("file", oct(st.st_mode), mtime, hash(f.read()))
                if st.st_nlink > 1:
                    groups.setdefault(st.st_ino, []).append(rel)
            else:
                out[rel] = ("other", oct(st.st_mode), mtime)
    for names in groups.values():
        for rel in names:
            out[rel] += (tuple(sorted(names)),)
    return out


def differences(a, b):
    """For a message: the names that are not alike, a few of them."""
    return [(n, a.get(n), b.get(n)) for n in sorted(set(a) | set(b)) if a.get(n) != b.get(n)][:5]


def remove(root):
    """Also what may not be written to."""
    import shutil
    for folder, dirs, _ in os.walk(os.fsencode(root)):
        for d in dirs:
            path = os.path.join(folder, d)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(os.fsencode(root), ignore_errors=True)
