"""The live view: a page on this machine's own address that follows its runs."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from pytorchrl.errors import RLError

ADDRESS = "127.0.0.1"
# Asks for the page again and replaces what changed; what the reader chose and scrolled to stays.
FOLLOW = """<script>
let last = "";
setInterval(async () => {
  const live = document.getElementById("live");
  try {
    const text = await (await fetch(location.href)).text();
    live.textContent = "live";
    if (text === last) return;
    last = text;
    const chosen = [...document.querySelectorAll("input:checked")].map(input => input.id);
    const page = new DOMParser().parseFromString(text, "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
    for (const id of chosen) { const input = document.getElementById(id); if (input) input.checked = true; }
  } catch { live.textContent = "the server has ended; this is the last state"; }
}, 2000);
</script>
"""
MARK = '<p class="muted" id="live" role="status">live</p>\n'
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:; media-src data:"
)


def live_page(page: str) -> str:
    """A page that follows; an icon of its own keeps browsers from asking for one."""
    page = page.replace("</head>", '<link rel="icon" href="data:,"></head>', 1)
    return page.replace("<main>", f"{MARK}<main>", 1).replace("</body>", f"{FOLLOW}</body>", 1)


def server(draw: Callable[[], str], port: int = 0) -> ThreadingHTTPServer:
    """A server of the page that ``draw`` draws anew at every request; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            if host not in (ADDRESS, "localhost"):  # another site that calls itself this machine
                self.send_error(403)
                return
            if urlsplit(self.path).path != "/":
                self.send_error(404)
                return
            try:
                status, text = 200, live_page(draw())
            except (RLError, OSError) as error:
                status, text = 503, str(error)
            data = text.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", f"text/{'html' if status == 200 else 'plain'}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """The terminal belongs to the user."""

    return ThreadingHTTPServer((ADDRESS, port), Handler)
