"""Faults that a test puts into running processes: processes that stand still, wires that are slow or cut."""
import asyncio
import contextlib
import os
import signal
import socket
import threading


@contextlib.contextmanager
def frozen(*pids):
    """Processes that do nothing, and whose connections stay open."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def repeated(act, pause):
    """act(), again and again, with so many seconds in between."""
    ended = threading.Event()

    def go():
        while not ended.is_set():
            act(ended)
            ended.wait(pause)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def stutter(pids, seconds):
    """For repeated(): the processes stand still for so long."""
    pids = list(pids)

    def act(ended):
        with frozen(*pids):
            ended.wait(seconds)

    return act


class Wire:
    """A TCP connection's way to `target` (host:port), which can be slow, and can be cut."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.bytes_per_second = None  # of what comes from the target
        self.broken = False  # every connection ends when it has begun
        self.writers = set()
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self.thread.start()

    def _run(self, listener):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self._serve, sock=listener))
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        try:
            if self.broken:
                raise OSError("broken")
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        pair = {writer, far_writer}
        self.writers |= pair
        with contextlib.suppress(asyncio.CancelledError):  # stop()
            await asyncio.gather(self._carry(reader, far_writer, False), self._carry(far_reader, writer, True))
        self.writers -= pair

    async def _carry(self, reader, writer, answers):
        with contextlib.suppress(OSError):
            while data := await reader.read(16384):
                if answers and self.bytes_per_second:
                    await asyncio.sleep(len(data) / self.bytes_per_second)
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self):
        """Every connection ends at once; new ones are taken unless the wire is broken."""
        self.loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in self.writers])

    @contextlib.contextmanager
    def broken_off(self):
        self.broken = True
        self.cut()
        try:
            yield
        finally:
            self.broken = False

    async def _end(self):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
