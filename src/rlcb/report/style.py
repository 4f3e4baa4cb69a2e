"""How the page looks: on a laptop, on a narrow screen, in the dark, on paper."""

from rlcb.analysis.plots import COLOURS

# Black is the colour of text here, so that it can be seen in the dark too.
_MARKS = "\n".join(
    f"i.k{number}{{border-color:{'currentColor' if colour == '#000000' else colour}}}"
    for number, colour in enumerate(COLOURS)
)

STYLE = f"""
:root{{color-scheme:light dark;--paper:#fff;--card:#f6f7f9;--ink:#1d2126;--soft:#59636e;--line:#d5dae0;--grid:#dfe3e8;
--accent:#0072B2}}
@media (prefers-color-scheme:dark){{:root{{--paper:#14171b;--card:#1c2127;--ink:#e4e8ec;--soft:#9aa5b1;--line:#363d46;
--grid:#333a43;--accent:#56B4E9}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0 auto;max-width:78rem;padding:2.5rem 1.5rem 4rem;background:var(--paper);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}}
h1{{font-size:1.9rem;line-height:1.2;margin:0 0 .4rem;letter-spacing:-.01em;overflow-wrap:anywhere}}
h2{{font-size:1.35rem;line-height:1.3;margin:2.8rem 0 .8rem;padding-top:1rem;border-top:1px solid var(--line);
overflow-wrap:anywhere}}
h3{{font-size:1.08rem;margin:2rem 0 .6rem;overflow-wrap:anywhere}}
header p{{color:var(--soft);margin:0}}
p,ul,dl,figcaption{{max-width:60rem;overflow-wrap:anywhere}}
section:first-child h2{{border-top:0;margin-top:1.2rem;padding-top:0}}
.lead{{background:var(--card);border-left:4px solid var(--accent);border-radius:0 6px 6px 0;padding:.9rem 1.1rem;
font-size:1.06rem;margin:.8rem 0}}
nav{{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;margin:1.4rem 0 0;font-size:.93rem}}
a{{color:var(--accent)}}
.scroll{{overflow-x:auto;margin:1rem 0}}
table{{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}}
caption{{caption-side:top;text-align:left;color:var(--soft);font-size:.88rem;padding:0 0 .5rem;
max-width:min(60rem,100vw - 3rem)}}
th,td{{padding:.42rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}}
thead th{{font-weight:600;border-bottom:2px solid var(--line);vertical-align:bottom}}
tbody th{{font-weight:500;min-width:13rem;max-width:24rem;overflow-wrap:break-word}}
td{{max-width:24rem}}
th:first-child{{padding-left:.2rem}}
.r{{text-align:right;white-space:nowrap}}
thead .r{{white-space:normal}}
td span,th span{{color:var(--soft);font-size:.88em}}
.r span{{display:block;white-space:nowrap}}
i{{display:inline-block;width:1.35rem;margin-right:.5rem;vertical-align:.22em;border-top:4px solid}}
i.l1{{border-top-style:dashed}}i.l2{{border-top-style:dotted}}i.l3{{border-top-style:double}}
{_MARKS}
figure{{margin:1.2rem 0 1.8rem}}
figcaption{{color:var(--soft);font-size:.9rem}}
.picture{{max-width:60rem;margin:0 0 .5rem}}
svg{{display:block;width:100%;min-width:35rem;height:auto;color:var(--ink)}}
svg *{{stroke-linejoin:round;stroke-linecap:butt}}
svg text{{fill:currentColor;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}}
pre{{background:var(--card);border-radius:6px;padding:.8rem 1rem;overflow-x:auto;font-size:.85rem;line-height:1.45}}
code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
details{{margin:.5rem 0}}
summary{{cursor:pointer}}
dt{{font-weight:600;margin-top:.7rem}}
dd{{margin:.1rem 0 0}}
@media (max-width:40rem){{body{{padding:1.2rem .9rem 3rem}}h1{{font-size:1.45rem}}h2{{font-size:1.2rem}}
th,td{{padding:.4rem .55rem}}tbody th{{min-width:9rem}}}}
@page{{margin:14mm}}
@media print{{
:root{{color-scheme:light;--paper:#fff;--card:#f6f7f9;--ink:#000;--soft:#444;--line:#bbb;--grid:#ddd;--accent:#0072B2}}
html{{font-size:9.5pt}}
body{{max-width:none;padding:0}}
nav{{display:none}}
.scroll{{overflow:visible}}
table{{font-size:7.5pt;max-width:100%}}
th,td{{padding:2pt 4pt}}
tbody th{{min-width:22mm;overflow-wrap:anywhere}}
thead{{display:table-header-group}}
tr,figure,.lead,caption,dt,li{{break-inside:avoid}}
h2,h3,caption,summary,dt{{break-after:avoid}}
svg{{min-width:0}}
.picture{{max-width:14cm}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere}}
details:not([open]){{display:none}}
}}
"""
