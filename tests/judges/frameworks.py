# SPDX-License-Identifier: MIT
"""Programs of others that are built on the e2b SDK, as judges of a server: frameworks.py NAME prints [NAME, null] or
[NAME, what was wrong]. Where the server is comes from the SDK's own E2B_* variables."""
import asyncio
import io
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path


async def openai_agents():
    """A session of the OpenAI Agents SDK: commands, files, a terminal, its workspace carried to another sandbox."""
    from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
    from agents.sandbox import Manifest
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions(sandbox_type="e2b", timeout=300, envs={"A": "1"})
    session = await client.create(manifest=Manifest(root="/home/user/workspace"), options=options)
    second = await client.create(manifest=Manifest(root="/home/user/workspace"), options=options)
    try:
        for s in (session, second):
            await s.start()
        assert await session.running()
        r = await session.exec("echo $A; echo err >&2; exit 3", shell=True)
        assert (r.stdout, r.stderr, r.exit_code) == (b"1\n", b"err\n", 3), r
        await session.mkdir(Path("/home/user/workspace/sub"), parents=True)
        await session.write(Path("/home/user/workspace/sub/f.txt"), io.BytesIO(b"text"))
        assert (await session.read(Path("/home/user/workspace/sub/f.txt"))).read() == b"text"
        assert any(e.path.endswith("f.txt") for e in await session.ls(Path("/home/user/workspace/sub")))
        terminal = await session.pty_exec_start("echo in a terminal", shell=True, tty=True, yield_time_s=3)
        assert b"in a terminal" in terminal.output, terminal
        await second.hydrate_workspace(await session.persist_workspace())
        assert (await second.read(Path("/home/user/workspace/sub/f.txt"))).read() == b"text"
    finally:
        for s in (session, second):
            await s.stop()
            await s.shutdown()


async def langchain_e2b():
    """A backend of Deep Agents: commands, files up and down, edits, searches."""
    import e2b
    from langchain_e2b import E2BSandbox
    sandbox = e2b.Sandbox.create(timeout=300)
    try:
        b = E2BSandbox(sandbox=sandbox)
        r = b.execute("echo out; echo err >&2; exit 3")
        assert r.exit_code == 3 and "out" in r.output and "err" in r.output, r
        assert b.execute("sleep 30", timeout=1).exit_code == 124
        assert not [x for x in b.upload_files([("/home/user/u/a.txt", b"up\n")]) if x.error]
        assert b.download_files(["/home/user/u/a.txt"])[0].content == b"up\n"
        assert b.download_files(["/no/such"])[0].error
        assert not b.write("/home/user/u/b.txt", "one\ntwo\n").error
        assert "two" in str(b.read("/home/user/u/b.txt"))
        assert not b.edit("/home/user/u/b.txt", "two", "three").error
        assert sandbox.files.read("/home/user/u/b.txt") == "one\nthree\n"
        assert "b.txt" in str(b.ls("/home/user/u")) and "a.txt" in str(b.glob("*.txt", "/home/user/u"))
        assert "b.txt" in str(b.grep("three", "/home/user/u"))
    finally:
        sandbox.kill()


async def harbor():
    """An environment of Harbor, whose template is there already: a snapshot that has its name."""
    import e2b
    from harbor.environments.e2b import E2BEnvironment
    from harbor.models.task.config import EnvironmentConfig
    from harbor.models.trial.paths import TrialPaths
    with tempfile.TemporaryDirectory() as d:
        folder = Path(d)
        (folder / "environment").mkdir()
        (folder / "environment" / "Dockerfile").write_text("FROM debian:12\nWORKDIR /tmp\n")
        (folder / "dir").mkdir()
        (folder / "dir" / "a.txt").write_text("in a folder")
        env = E2BEnvironment(environment_dir=folder / "environment", environment_name="judge", session_id="s1",
                             trial_paths=TrialPaths(trial_dir=folder / "trial"), task_env_config=EnvironmentConfig(),
                             sandbox_timeout_secs=300)
        maker = await e2b.AsyncSandbox.create(timeout=120)
        snapshot = await maker.create_snapshot(name=env._template_name)
        await maker.kill()
        try:
            await env.start(force_build=False)
            r = await env.exec("pwd; echo err >&2; exit 3")
            assert (r.stdout, r.stderr, r.return_code) == ("/tmp\n", "err\n", 3), r
            await env.upload_dir(folder / "dir", "/tmp/dir")
            assert await env.is_dir("/tmp/dir") and await env.is_file("/tmp/dir/a.txt")
            await env.download_file("/tmp/dir/a.txt", folder / "back.txt")
            assert (folder / "back.txt").read_text() == "in a folder"
            await env.download_dir("/tmp/dir", folder / "back")
            assert (folder / "back" / "a.txt").read_text() == "in a folder"
        finally:
            await env.stop(delete=True)
            await e2b.AsyncSandbox.delete_snapshot(snapshot.snapshot_id)


name = sys.argv[1]
try:
    asyncio.run(asyncio.wait_for(globals()[name.replace("-", "_")](), 100))
    wrong = None
except BaseException:
    wrong = traceback.format_exc()
print("\n" + json.dumps([name, wrong]), flush=True)
os._exit(0)
