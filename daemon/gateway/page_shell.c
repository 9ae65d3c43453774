/* SPDX-License-Identifier: MIT */
#include "daemon/gateway/page_shell.h"

#include <string.h>

#define HEAD "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">" \
	     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>agentboxd</title>"

static const char style[] =
	":root{color-scheme:light dark;--line:#8884;--dim:#777}"
	"body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:78rem;padding:0 1rem 3rem}"
	"h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}a{color:inherit}"
	"nav,.dim{color:var(--dim)}.bad{color:#c22}.good{color:#282}"
	".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}"
	"th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top;unicode-bidi:isolate}"
	"th{font-weight:600;color:var(--dim)}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
	"time,code,pre{font-family:ui-monospace,monospace;font-size:.87em}td.wide{overflow-wrap:anywhere}time,td code{white-space:nowrap}"
	"pre{background:#8881;padding:.6rem;margin:.2rem 0 1rem;white-space:pre-wrap;overflow-wrap:anywhere;max-height:22rem;overflow-y:auto}"
	"dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}"
	"#away{display:none}.away #away{display:block}.away main{opacity:.5}"
	"@media(max-width:40rem){dl{grid-template-columns:1fr}dt{margin-top:.4rem}.wide{display:none}}";

static const char script[] =
	"(function(){var d=document,v=d.getElementById('v'),s=new EventSource(v.dataset.live);"
	"s.onmessage=function(e){v.innerHTML=e.data};s.onopen=function(){d.body.className=''};"
	"s.onerror=function(){d.body.className='away'}})()";

static void put_style(struct html *h, const char *nonce)
{
	html_put(h, HEAD "<style nonce=\"");
	html_str(h, nonce);
	html_put(h, "\">");
	html_put(h, style);
	html_put(h, "</style>");
}

void page_shell_write(struct html *h, const char *nonce, const char *live, const char *html, size_t n)
{
	put_style(h, nonce);
	html_put(h, "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript></head><body>"
		    "<p id=\"away\" class=\"bad\">agentboxd does not answer, or this session is over; this is what was last known.</p>"
		    "<main id=\"v\" data-live=\"");
	html_str(h, live);
	html_put(h, "\">");
	if (!h->failed)
		h->failed = buf_put(&h->b, html, n) < 0;
	html_put(h, "</main><script nonce=\"");
	html_str(h, nonce);
	html_put(h, "\">");
	html_put(h, script);
	html_put(h, "</script></body></html>\n");
}

void page_shell_say(struct html *h, const char *text)
{
	html_put(h, HEAD "</head><body><h1>agentboxd</h1><p>");
	html_str(h, text);
	html_put(h, "</p></body></html>\n");
}
