"""Opens the page: settings, backend, page, launch; then the model loads while the page is already there.

kvdemo [--model NAME] [--host ADDRESS] [--port N] [--allow-host NAME] [--allow-endpoint HOST] [--root-path /PATH] [--share]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from kvdemo import __version__
from kvdemo.cli.streams import make_streams_forgiving
from kvdemo.ending import end_on_signals
from kvdemo.facts.model import Failed, Loading, Ready
from kvdemo.surroundings import direct_to_this_machine, take_over

__all__ = ["main", "parse"]


class Arguments(argparse.ArgumentParser):
    """A parser whose complaint is one line, and whose help goes on with the commands."""

    def format_help(self) -> str:
        from kvdemo.cli.main import names_of_commands

        return f"{super().format_help()}\n{names_of_commands()}"

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"kvdemo: {message} (--help lists what there is)\n")


def parse(argv: Sequence[str] | None, prog: str = "app.py") -> argparse.Namespace:
    parser = Arguments(prog=prog, description="What a KV cache buys, and what it costs, on a page in your browser.")
    parser.add_argument("--version", action="version", version=f"kvdemo {__version__}")
    parser.add_argument(
        "--model", help="hub id, local folder, .gguf file or tiny-window; default: SmolLM2-135M-Instruct"
    )
    parser.add_argument("--host", help="address to listen on; default: 127.0.0.1, this machine only")
    parser.add_argument("--port", type=port_number, help="default: the first free one from 7860")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a further name that the page answers to, such as a proxy's; repeat it; .NAME: and all names below it",
    )
    parser.add_argument(
        "--allow-endpoint",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="an engine that the page may ask although it is inside a private network, or the page is shared; repeat it",
    )
    parser.add_argument(
        "--root-path", metavar="/PATH", help="the path that a proxy in front puts before the page's own"
    )
    parser.add_argument("--share", action="store_true", help="ask Gradio for a public address, too")
    return parser.parse_args(argv)


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a port; give a number from 1 to 65535")
    return int(text)


def serve(arguments: argparse.Namespace) -> int:
    """Serves the page until it is interrupted; the exit status where it could not begin."""
    # What is imported stays: looking through it for garbage again and again would cost a fifth of the start.
    gc.disable()
    from kvdemo.backend import Backend, check_model
    from kvdemo.errors import KvdemoError
    from kvdemo.settings import Settings

    for note in take_over(os.environ):
        print(f"kvdemo: {note}", file=sys.stderr)
    try:
        settings = Settings.from_environment(
            os.environ,
            model=arguments.model,
            share=arguments.share,
            allow_hosts=arguments.allow_host,
            root_path=arguments.root_path,
            allow_endpoints=arguments.allow_endpoint,
        )
        # A wrong name ends here, before Gradio's import; a model that then fails to load leaves the page up.
        check_model(settings)
    except KvdemoError as error:
        return complain(str(error), 2)

    # Gradio makes HTTP clients when it is imported, and a proxy that cannot be used would end that.
    with direct_to_this_machine():
        from kvdemo.ui.page import build_page, page_style
    from kvdemo.web.launch import calm_queue, launch_settings, open_page

    backend = Backend(settings)
    served = launch_settings(settings, host=arguments.host, port=arguments.port)
    page = build_page(backend, settings).queue(**served.queue)
    calm_queue(page)
    try:
        if settings.mode == "share":
            print("Asking for a public address; without a network that takes up to half a minute.", flush=True)
        try:
            address, public_address = open_page(page, served, page_style())
        except OSError:
            return complain(unusable_address(served.launch["server_name"], arguments.port), 1)
        print(f"kvdemo is at {address} (Ctrl-C ends it)", flush=True)
        if settings.mode == "share":
            print(f"Public address: {public_address}" if public_address else NO_PUBLIC_ADDRESS, flush=True)
        # Loading before launch would make the first byte half as late again.
        backend.start()
        print(in_words(backend.wait_until_settled()), flush=True)
        gc.freeze()
        gc.enable()
        while True:
            time.sleep(3600)
    finally:
        page.close(verbose=False)
        backend.close()


def in_words(status: Loading | Ready | Failed) -> str:
    if isinstance(status, Ready):
        return f"{status.facts.name} is loaded: {status.facts.dtype} on {status.facts.device}. {status.facts.source}"
    return f"No model is loaded: {status.reason if isinstance(status, Failed) else status.step}"


NO_PUBLIC_ADDRESS = "No public address could be had (is there a network?). kvdemo goes on at the address above."


def unusable_address(host: str, port: int | None) -> str:
    if port is None:
        return f"no free port from 7860 to 7959 on {host}, or {host} is no address of this machine"
    return (
        f"port {port} on {host} is taken, or {host} is no address of this machine; choose another with --port or --host"
    )


def complain(message: str, status: int) -> int:
    print(f"kvdemo: {message}", file=sys.stderr)
    return status


def main(prog: str = "app.py") -> int:
    """The page as a program of its own, until it is interrupted; its exit status. prog: how it was started."""
    make_streams_forgiving()
    arguments = parse(None, prog)
    # What stops a container ends the page like Ctrl-C does.
    end_on_signals(0, "\nkvdemo has ended.", sys.stdout)
    return serve(arguments)
