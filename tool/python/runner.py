# The kernel of tool/python: it reads cells from a socket and runs them, one after the other, in one namespace.
#
# It is given `key` (16 bytes), and the numbers of two sockets: file 3, over which cells come and events go, and file 4,
# over which code in a cell asks its owner for something. A frame is four bytes of length (big endian), the key, and as
# many bytes of JSON. With a cell come one or two descriptors, its standard output and error.
#
# Python 3.8 and later.

import sys

sys.path[:] = [p for p in sys.path if p]  # a json.py in the working directory is for cells

import _socket
import atexit
import binascii
import builtins
import contextvars
import faulthandler
import fcntl
import io
import linecache
import os
import select
import signal
import threading
import time
import traceback
import types
from json import dumps, loads

ASYNC = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
TREE = 0x400  # ast.PyCF_ONLY_AST
COROUTINE = 0x80  # inspect.CO_COROUTINE
FUTURES = 0x1FF0000  # of __future__, which last as in a notebook

MAX_RESULT = 50 << 10  # characters of a result that are handed over; the output has all of it
MAX_SOURCE = 8 << 20  # bytes of HTML and JSON that are handed over beside their text
MAX_IMAGE = 32 << 20
MAX_FRAME = 64 << 20
MAX_ARTIFACT = 32 << 20
MAX_FRAMES = 24  # of a traceback
PRETTY = 20_000  # characters from which on a container is printed on one line


class State:
    cell = None  # that which runs, or ran last
    running = False  # a cell's code: an interrupt is for it
    held = 0  # an interrupt has to wait
    deferred = False  # and one does
    task = None  # that the code awaits
    interrupted = False
    child = False  # of a cell that forked
    loop = None
    flags = ASYNC
    displayed = 0


state = State()
main = threading.get_ident()
current = contextvars.ContextVar("agentrun_cell")


class Hold:
    """An interrupt waits until the end of it: half a frame would be the end of the kernel."""

    def __enter__(self):
        if threading.get_ident() == main:
            state.held += 1

    def __exit__(self, *_):
        if threading.get_ident() == main:
            state.held -= 1
            if not state.held and state.deferred:
                state.deferred = False
                raise KeyboardInterrupt


hold = Hold()


class Gone(Exception):
    """The owner has closed its end."""


class Channel:
    """One socket. It is moved to a high number, where nobody looks, and is known by its inode."""

    def __init__(self, fd):
        for least in (900, 200, 64, 10):
            try:
                self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
                break
            except OSError:
                pass
        os.close(fd)
        self.socket = _socket.socket(fileno=self.fd)
        self.inode = os.fstat(self.fd).st_ino
        self.came = bytearray()  # of a frame whose reading was interrupted
        self.poll = select.poll()
        self.poll.register(self.fd, select.POLLIN)
        self.lock = threading.RLock()  # of writing

    def check(self):
        try:
            same = os.fstat(self.fd).st_ino == self.inode
        except OSError:
            same = False
        if not same:
            os.write(2, b"[The cell closed a descriptor that the kernel needs: the kernel ends]\n")
            os._exit(70)

    def send(self, value):
        body = dumps(value).encode()
        if len(body) > MAX_FRAME:
            raise ValueError("it is larger than %d MiB" % (MAX_FRAME >> 20))
        with hold, self.lock:
            self.check()
            self.socket.sendall(len(body).to_bytes(4, "big") + key + body)

    def fill(self, n, fds=None):
        while len(self.came) < n:
            self.poll.poll()
            with hold:
                if fds is None:
                    b = self.socket.recv(min(n - len(self.came), 1 << 20))
                else:
                    b, with_it, _, _ = self.socket.recvmsg(n - len(self.came), 64, 0x40000000)  # MSG_CMSG_CLOEXEC
                    for level, kind, data in with_it:
                        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                            fds.extend(int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, len(data) - 3, 4))
                self.came += b
            if not b:
                raise Gone

    def receive(self, fds=None):
        self.fill(20, fds)
        n = 20 + int.from_bytes(self.came[:4], "big")
        self.fill(n)
        with hold:
            body = bytes(self.came[20:n])
            self.came.clear()
        return loads(body)

    def close(self):
        self.socket.close()


class Cell:
    """A cell, for as long as somebody may write for it: then its descriptors are closed."""

    __slots__ = ("number", "fds", "figures")

    def __init__(self, number, fds):
        self.number, self.fds, self.figures = number, fds, 0

    def __del__(self, close=os.close):
        for fd in set(self.fds):
            try:
                close(fd)
            except OSError:
                pass


class Raw(io.BufferedIOBase):
    """Bytes of the standard output or error, of the cell that started who writes. Nothing is held back."""

    def __init__(self, which):
        self.which = which
        self.name = ("<stdout>", "<stderr>")[which - 1]
        self.mode = "wb"

    def write(self, b, write=os.write):
        cell = current.get(None)
        if cell is None or cell is state.cell:
            fd = self.which  # what the cell made of it, if it did
        else:
            fd = cell.fds[self.which - 1]
        view = memoryview(b).cast("B")
        n = len(view)
        while view:
            view = view[write(fd, view) :]
        return n

    def writable(self):
        return True

    def fileno(self):
        return self.which

    def close(self):
        pass

    @property
    def closed(self):
        return False


class Stream(io.TextIOBase):
    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    write_through = True

    def __init__(self, which):
        self.buffer = Raw(which)
        self.name = self.buffer.name
        self.mode = "w"

    def write(self, s):
        if not isinstance(s, str):
            raise TypeError("write() argument must be str, not " + type(s).__name__)
        if s:
            self.buffer.write(s.encode("utf-8", "backslashreplace"))
        return len(s)

    def writable(self):
        return True

    def fileno(self):
        return self.buffer.which

    def isatty(self):
        return False

    def reconfigure(self, **_):
        pass

    def close(self):
        pass

    @property
    def closed(self):
        return False


def follow_threads():
    """A thread writes for the cell that started it."""
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner

    def start_for(self):
        self._agentrun_cell = current.get(None) or state.cell
        return start(self)

    def bootstrap_for(self):
        cell = self.__dict__.pop("_agentrun_cell", None)
        if cell is not None:
            current.set(cell)
        cell = None
        return bootstrap(self)

    start_for.__name__, start_for.__doc__ = "start", start.__doc__
    threading.Thread.start, threading.Thread._bootstrap_inner = start_for, bootstrap_for


def library(name):
    """A module of the standard library, whatever lies in the working directory."""
    if name not in sys.modules:
        with hold:
            whole(name)
            path = sys.path[:]
            sys.path[:] = [p for p in path if p]
            try:
                __import__(name)
            finally:
                sys.path[:] = path
    return sys.modules[name]


def whole(name):
    """Forget what an interrupted import left of a package: no later one would find its parts where they belong."""
    if name not in sys.modules:
        for part in [m for m in sys.modules if m.startswith(name + ".")]:
            del sys.modules[part]


# What a cell asks its owner for.


class Error(RuntimeError):
    """agentrun refused what the code asked for, or could not do it."""


class Ran:
    """A script that agentrun.bash ran."""

    def __init__(self, d):
        self.output, self.exit_code, self.timed_out, self.artifact = d["output"], d["exitCode"], d["timedOut"], d["artifact"]

    def __str__(self):
        return self.output

    def __repr__(self):
        return "<agentrun.bash: exit code %d%s>" % (self.exit_code, ", " + self.artifact if self.artifact else "")


class Bridge:
    def __init__(self, channel):
        self.channel, self.lock, self.asked = channel, threading.Lock(), 0

    def ask(self, op, **args):
        if state.child:
            raise Error("agentrun.%s works in the process of the kernel, and not in one that it forked" % op)
        with self.lock:
            self.asked += 1
            asked = self.asked
            cell = current.get(None) or state.cell
            try:
                self.channel.send({"id": asked, "cell": cell.number if cell else 0, "op": op, "args": args})
                while True:
                    answer = self.channel.receive()
                    if answer["id"] == asked:  # others were interrupted
                        break
            except (Gone, OSError, ValueError) as e:
                raise Error("agentrun.%s: %s" % (op, str(e) or "nobody is there to answer")) from None
        if answer.get("error"):
            raise Error(answer["error"])
        return answer.get("value")


def read(url):
    """What a URL (artifact://3:10-20, agent://0-Review, blob:...) or a path names: text, or bytes where it is none."""
    d = bridge.ask("read", url=str(url))
    return binascii.a2b_base64(d["base64"]) if "base64" in d else d["text"]


def bash(script, timeout=None, cwd=None, env=None):
    """Runs a shell script, with its output bounded and kept; see .output, .exit_code, .timed_out and .artifact."""
    args = {"script": str(script)}
    if timeout is not None:
        args["timeout"] = float(timeout)
    args["cwd"] = os.path.abspath(cwd) if cwd is not None else os.getcwd()
    if env:
        args["env"] = {str(k): str(v) for k, v in dict(env).items()}
    return Ran(bridge.ask("bash", **args))


def artifact(name, data):
    """Keeps text or bytes as an artifact of the session, and returns its URL."""
    b = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(memoryview(data))
    if len(b) > MAX_ARTIFACT:
        raise Error("agentrun.artifact: %d bytes are more than %d MiB: print them, or write them to a file" % (len(b), MAX_ARTIFACT >> 20))
    return bridge.ask("artifact", name=str(name), base64=binascii.b2a_base64(b, newline=False).decode())["url"]


def task(*args, **kwargs):
    """Gives a task to an agent, where the program that runs the cell can."""
    return bridge.ask("task", args=list(args), kwargs=kwargs)


# How values are shown.


class Shown:
    """A value in the forms in which it is handed over."""

    def __init__(self):
        self.text = None  # what is printed
        self.images = []  # (media type, bytes)
        self.source = None  # (media type, text) of what text is a form of


def hook(obj, name, *args, **kwargs):
    """What a method by which notebooks show a value says; None where there is none, or it fails."""
    method = getattr(type(obj), name, None)
    if method is None:
        return None
    try:
        r = method(obj, *args, **kwargs)
    except Exception as e:
        if not isinstance(e, NotImplementedError):
            print("[%s of a %s failed: %s]" % (name, type(obj).__name__, traceback.format_exception_only(type(e), e)[-1].strip()), file=sys.stderr)
        return None
    return r[0] if isinstance(r, tuple) and r else r


HOOKS = (
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_html_", "text/html"),
    ("_repr_json_", "application/json"),
)


SHOWN = ("text/plain",) + tuple(mime for _, mime in HOOKS)


def forms(obj):
    """The media types that obj has, beside its plain text."""
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(obj, figure.Figure):
        return {"image/png": draw(obj)}
    if isinstance(obj, type):
        return {}
    got = hook(obj, "_repr_mimebundle_", include=None, exclude=None)
    got = dict(got) if isinstance(got, dict) else {}
    for name, mime in HOOKS:
        if mime not in got and not (mime.startswith("image/") and any(m.startswith("image/") for m in got)):
            value = hook(obj, name)
            if value is not None:
                got[mime] = value
    return got


def draw(figure):
    b = io.BytesIO()
    figure.savefig(b, format="png", bbox_inches="tight")
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is not None:
        plt.close(figure)
    return b.getvalue()


def plain(obj):
    text = repr(obj)
    if 100 < len(text) < PRETTY and type(obj) in (dict, list, tuple, set, frozenset):
        text = library("pprint").pformat(obj, width=100, **({"sort_dicts": False} if isinstance(obj, dict) else {}))
    return text


def is_default(text, obj):
    return text.startswith("<") and text.endswith(">") and " object at 0x" in text


def html_text(html):
    """The words of HTML, a row of a table on a line."""
    parser = library("html.parser")

    class Words(parser.HTMLParser):
        def __init__(self):
            super().__init__(convert_charrefs=True)
            self.out, self.hidden = [], 0

        def handle_starttag(self, tag, attrs):
            if tag in ("script", "style"):
                self.hidden += 1
            elif tag in ("td", "th"):
                self.out.append("\t")
            elif tag in ("br", "p", "div", "tr", "li", "table", "pre", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6"):
                self.out.append("\n")

        def handle_endtag(self, tag):
            if tag in ("script", "style"):
                self.hidden -= 1

        def handle_data(self, data):
            if self.hidden <= 0:
                self.out.append(" ".join(data.split()) + (" " if data[-1:].isspace() else ""))

    w = Words()
    w.feed(html)
    w.close()
    lines = (line.strip("\t ") for line in "".join(w.out).split("\n"))
    return "\n".join(line for line in lines if line)


def show(obj, mime=None):
    """Makes a Shown of obj, which is of the media type mime itself where one is given."""
    shown = Shown()
    if mime is not None and mime not in SHOWN:
        raise ValueError("display shows %s, and no %s" % (", ".join(SHOWN), mime))
    got = forms(obj) if mime is None else {mime: obj}
    for kind in sorted(got):
        if kind in ("image/png", "image/jpeg"):
            data = got[kind]
            data = binascii.a2b_base64(data) if isinstance(data, str) else bytes(data)
            if len(data) > MAX_IMAGE:
                shown.text = "[%s of %d bytes, more than the %d MiB that are kept]" % (kind, len(data), MAX_IMAGE >> 20)
            else:
                shown.images.append((kind, data))
            break
    text = got.get("text/plain")
    if text is None and mime is None and not (shown.images or shown.text):
        text = plain(obj)
    for kind in ("text/markdown", "text/html", "application/json"):
        source = got.get(kind)
        if source is None:
            continue
        if kind == "application/json" and not isinstance(source, str):
            source = dumps(source, indent=2, default=repr, ensure_ascii=False)
        shown.source = (kind, str(source))
        if kind != "text/html":
            text = str(source)
        elif text is None or is_default(text, obj):
            text = html_text(str(source)) or text
        break
    if shown.text is None:
        shown.text = text if text is not None or shown.images or mime is None else str(obj)
    return shown


def hand_over(shown):
    """Prints the text of a Shown and sends what is more."""
    if shown.text is not None:
        print(shown.text)
    cell = current.get(None) or state.cell
    if state.child or cell is not state.cell or not state.running:
        if shown.images:
            print("[%s that came behind the end of its cell]" % shown.images[0][0])
        return
    for kind, data in shown.images:
        control.send({"event": "display", "cell": cell.number, "mime": kind, "base64": binascii.b2a_base64(data, newline=False).decode()})
        state.displayed += 1
        print("[image %d: %s%s]" % (state.displayed, kind, size_of(kind, data)))
    if shown.source is not None and len(shown.source[1]) <= MAX_SOURCE:
        control.send({"event": "display", "cell": cell.number, "mime": shown.source[0], "text": shown.source[1]})


def size_of(kind, data):
    if kind == "image/png" and data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return ", %d x %d pixels" % (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))
    return ""


display_lock = threading.RLock()


def display(*values, mime=None):
    """Shows values as a notebook does; with mime they are text or bytes of that media type."""
    for v in values:
        with display_lock:
            hand_over(show(v, mime))


def show_figures(*_, **__):
    """Shows the figures that pyplot has open, and closes them."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None or "matplotlib.pyplot" not in sys.modules:
        return
    for manager in helpers.Gcf.get_all_fig_managers():
        display(manager.canvas.figure)


class Figures:
    """Has pyplot.show show figures here, as soon as a cell imports pyplot."""

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path.remove(self)
        spec = library("importlib.util").find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if "agg" in str(module.matplotlib.get_backend()).lower():
                module.show = show_figures

        spec.loader.exec_module = exec_module
        return spec


# How a cell runs.


def no_input(prompt=""):
    raise EOFError("input() can ask nobody: no person is at this kernel; put the value into the code")


def on_interrupt(_, frame):
    if not state.running:
        return
    state.interrupted = True
    if state.held:
        state.deferred = True
        return
    task = state.task
    if task is not None and not task.done():
        where = frame.f_globals.get("__name__", "") if frame else ""
        if where.startswith(("asyncio", "selectors")):  # the loop waits
            task.cancel()
            state.loop.call_soon_threadsafe(lambda: None)
            return
    raise KeyboardInterrupt


def await_(coroutine):
    asyncio = library("asyncio")
    if state.loop is None or state.loop.is_closed():
        state.loop = asyncio.new_event_loop()
    loop = state.loop
    asyncio.set_event_loop(loop)
    state.task = task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError:
        if state.interrupted:
            raise KeyboardInterrupt from None
        raise
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except BaseException:
                pass
        raise
    finally:
        state.task = None


def compile_cell(code, name):
    """The parts of a cell, and whether the value of the last is shown."""
    tree = compile(code, name, "exec", TREE | state.flags, True)
    last = tree.body[-1] if tree.body else None
    parts = []
    shows = type(last).__name__ == "Expr"
    if shows:
        tree.body.pop()
        lines = code.encode().split(b"\n")
        rest = lines[last.end_lineno - 1][last.end_col_offset :] if last.end_lineno <= len(lines) else b""
        silent = rest.lstrip().startswith(b";")
    if tree.body:
        parts.append(compile(tree, name, "exec", state.flags, True))
    if shows:
        # The type is had from a tree, for want of the module ast, which takes its time.
        expression = compile("0", name, "eval", TREE, True)
        expression.body = last.value
        parts.append(compile(expression, name, "eval", state.flags, True))
        shows = not silent
    for part in parts:
        state.flags |= part.co_flags & FUTURES
    return parts, shows


def short(e, seen=None):
    """The lines of a traceback, from the cell on."""
    seen = set() if seen is None else seen
    seen.add(id(e))
    lines = []
    cause, context = e.__cause__, e.__context__
    if cause is not None and id(cause) not in seen:
        lines += short(cause, seen) + ["\nThe above exception was the direct cause of the following exception:\n\n"]
    elif cause is None and context is not None and not e.__suppress_context__ and id(context) not in seen:
        lines += short(context, seen) + ["\nDuring handling of the above exception, another exception occurred:\n\n"]
    group = getattr(builtins, "BaseExceptionGroup", None)
    if group is not None and isinstance(e, group):
        tb = e.__traceback__
        while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
            tb = tb.tb_next
        return lines + traceback.format_exception(type(e), e, tb, chain=False)
    frames = traceback.extract_tb(e.__traceback__)
    while frames and frames[0].filename == "<agentrun kernel>":
        del frames[0]
    first = next((i for i, f in enumerate(frames) if f.filename.startswith("<cell ")), None)
    if first:
        del frames[:first]
    frames = [f for f in frames if f.filename != "<agentrun kernel>"]
    if frames:
        told = traceback.StackSummary.from_list(frames).format()
        if len(told) > MAX_FRAMES:
            gone = len(told) - MAX_FRAMES
            told[MAX_FRAMES // 3 : MAX_FRAMES // 3 + gone] = ["  [%d frames are left out]\n" % gone]
        lines += ["Traceback (most recent call last):\n"] + told
    return lines + traceback.format_exception_only(type(e), e)


def run(cell, code):
    """Runs the code of a cell: its exit code, and the text of its value."""
    name = "<cell %d>" % cell.number
    code = code[code.startswith("\ufeff") :]  # as Python does with files
    linecache.cache[name] = (len(code), None, [line + "\n" for line in code.split("\n")], name)
    try:
        parts, shows = compile_cell(code, name)
        value = None
        for part in parts:
            value = eval(part, namespace)
            if part.co_flags & COROUTINE:
                value = await_(value)
        text = None
        if shows and value is not None:
            namespace["_"] = value
            shown = show(value)
            hand_over(shown)
            text = shown.text
        show_figures()
        return 0, text
    except SystemExit as e:
        show_figures()
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 0xFF, None
        print(e.code, file=sys.stderr)
        return 1, None
    except KeyboardInterrupt as e:
        state.interrupted = True
        sys.stderr.write("".join(short(e)))
        return 130, None
    except BaseException as e:
        lines = short(e)
        show_figures()
        sys.stderr.write("".join(lines))
        return 1, None


def guarded(cell, code):
    """run, whenever an interrupt comes."""
    try:
        try:
            state.running = True
            control.send({"event": "begin", "cell": cell.number})  # from here on an interrupt is for the code
            return run(cell, code)
        finally:
            state.running = False
    except BaseException as e:  # an interrupt while the cell's end was told
        state.running = False
        state.interrupted = state.interrupted or isinstance(e, KeyboardInterrupt)
        return 130 if state.interrupted else 1, None


def used():
    t = os.times()
    return t[0] + t[2], t[1] + t[3]


def serve():
    while True:
        if state.loop is not None and not state.loop.is_closed():
            idle()
        fds = []
        request = control.receive(fds)
        number = request["cell"]
        state.cell = cell = Cell(number, (fds[0], fds[-1]))
        current.set(cell)
        os.dup2(fds[0], 1)
        os.dup2(fds[-1], 2)
        signal.signal(signal.SIGINT, on_interrupt)
        if state.interrupted:
            whole("asyncio")  # which cells import before they await
        state.interrupted, state.deferred, state.displayed = False, False, 0
        before = used()
        kept = {}  # variables as they were before the cell: its own may be secrets
        try:
            for k, v in request.get("env") or ():
                k = binascii.a2b_base64(k)
                kept.setdefault(k, os.environb.get(k))
                os.environb[k] = binascii.a2b_base64(v)
            if request.get("cwd"):
                os.chdir(binascii.a2b_base64(request["cwd"]))
        except OSError as e:
            print(e, file=sys.stderr)
            code, text = 1, None
        else:
            code, text = guarded(cell, request["code"])
        if state.child:
            os._exit(code)
        for k, v in kept.items():
            if v is None:
                os.environb.pop(k, None)
            else:
                os.environb[k] = v
        after = used()
        if text is not None and len(text) > MAX_RESULT:
            text = text[:MAX_RESULT] + "… [%d characters; the output has all of them]" % len(text)
        if text is not None:
            text = text.encode("utf-8", "backslashreplace").decode()
        control.send(
            {
                "event": "end", "cell": number, "code": code, "result": text, "interrupted": state.interrupted,
                "user": int((after[0] - before[0]) * 1e6), "system": int((after[1] - before[1]) * 1e6),
            }
        )
        del cell, request


def idle():
    """Tasks that cells left go on until the next cell comes."""
    loop, asyncio = state.loop, sys.modules["asyncio"]
    if not asyncio.all_tasks(loop):
        return
    asyncio.set_event_loop(loop)
    loop.add_reader(control.fd, loop.stop)
    try:
        loop.run_forever()
    finally:
        loop.remove_reader(control.fd)


def forked():
    state.child = True
    control.close()
    bridge.channel.close()


control = Channel(3)
bridge = Bridge(Channel(4))
os.register_at_fork(after_in_child=forked)
faulthandler.enable(2)
follow_threads()
sys.stdout = sys.__stdout__ = Stream(1)
sys.stderr = sys.__stderr__ = Stream(2)
sys.argv = [""]
builtins.input = no_input
builtins.display = display
sys.meta_path.insert(0, Figures())
module = types.ModuleType("agentrun", "What code in a cell can ask agentrun for.")
for f in (read, bash, artifact, task, display, Error, Ran):
    f.__module__ = "agentrun"
    setattr(module, f.__name__, f)
sys.modules["agentrun"] = module
user = types.ModuleType("__main__")
user.__dict__["__builtins__"] = builtins
sys.modules["__main__"] = user
namespace = user.__dict__
namespace["agentrun"] = module
signal.signal(signal.SIGINT, on_interrupt)
sys.path.insert(0, "")
control.send({"event": "ready", "executable": sys.executable or "", "version": "%d.%d.%d" % sys.version_info[:3], "pid": os.getpid()})
try:
    serve()
except Gone:  # nobody has a use for the kernel any more
    status = 0
except OSError:  # the cell did something to the sockets
    status = 70
try:
    atexit._run_exitfuncs()
finally:
    os._exit(status)
