"""The stylesheet of the console, for light and dark."""

from __future__ import annotations

CSS = """
body {
  --surface: #ffffff; --ground: #f7f7f4; --ink: #1f2328; --quiet: #5b626c; --edge: #dfdfd9; --mine: #e4ecf9;
  --link: #2a4d86; --good: #1e6b3a; --warn: #8a5300; --bad: #b3261e; --lit: #fff3c4;
  --q-primary: #34568b !important; --q-negative: #b3261e !important; --q-positive: #1e6b3a !important;
  background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
}
body.body--dark {
  --surface: #1d1f22; --ground: #131416; --ink: #e6e6e3; --quiet: #a2a8b1; --edge: #34373c; --mine: #223350;
  --link: #9dbbee; --good: #7fcb98; --warn: #e5b567; --bad: #f2938c; --lit: #4a3f14;
  --q-primary: #4a72b5 !important;
  background: var(--ground); color: var(--ink);
}
.nicegui-content { padding: 1.25rem; width: 100%; }
.main { width: 100%; max-width: 56rem; margin: 0 auto; outline: none;
  display: flex; flex-direction: column; gap: 1rem; }
.q-header, .q-drawer { background: var(--surface) !important; color: var(--ink) !important; }
/* Quasar's colours are `!important` in a layer and override ours, so we change the variables that it reads. */
body .q-header .q-btn.q-btn { --q-primary: var(--ink); }
.dialog > * { flex-shrink: 0; }
.q-drawer--bordered.q-drawer--left { border-right: 1px solid var(--edge); }
.q-header { display: flex; flex-direction: row; flex-wrap: nowrap; align-items: center; gap: .25rem;
  padding: .35rem .75rem; min-height: 3.25rem; border-bottom: 1px solid var(--edge); }
.q-drawer nav { width: 100%; gap: .15rem; } .q-drawer__content { padding: .75rem; }
.title { font-size: 1.15rem; font-weight: 600; white-space: nowrap; margin-left: .25rem; }
.whose { max-width: 12rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.whose .q-btn__content { flex-wrap: nowrap; } .whose .block { overflow: hidden; text-overflow: ellipsis; }
a { color: var(--link); text-underline-offset: .15em; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 0; }
.quiet { color: var(--quiet); font-size: .875rem; }
.card { background: var(--surface); border: 1px solid var(--edge); border-radius: .6rem; padding: .9rem 1rem;
  width: 100%; box-shadow: none; display: flex; flex-direction: column; gap: .5rem; align-items: stretch; }
pre.block { font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; background: var(--ground); border: 1px solid var(--edge); border-radius: .4rem;
  padding: .6rem .75rem; margin: 0; max-height: 24rem; overflow: auto; width: 100%; flex: none; }
.note { border-left: 3px solid var(--edge); padding: .15rem 0 .15rem .75rem; color: var(--quiet); font-size: .875rem; }
.note.wrong { border-color: var(--bad); color: var(--bad); }
.notice { display: flex; align-items: center; gap: .75rem; } .notice > .note { flex: 1; }
.main:has(> .composer) { min-height: calc(100dvh - 3.25rem - 2.5rem); }
.talk { display: flex; flex-direction: column; gap: 1.25rem; flex: 1; min-height: 40vh; min-width: 0; }
.mine { align-self: flex-end; background: var(--mine); border-radius: 1rem 1rem .25rem 1rem; padding: .6rem .95rem;
  max-width: min(85%, 40rem); min-width: 0; }
.answer { display: flex; flex-direction: column; gap: .4rem; min-width: 0; max-width: 100%; }
.answer .foot { min-height: 1.75rem; margin-left: -.25rem; }
.answer .foot .q-btn { font-size: .8125rem; } .answer .foot .tool { margin-left: .25rem; }
/* The parser drops blank lines between blocks, so blocks need margins. */
.prose + .prose, .prose + pre.block, pre.block + .prose { margin-top: .6rem; }
.prose.item + .prose.item { margin-top: .15rem; }
.prose.heading { font-weight: 600; font-size: 1.05rem; margin-top: .9rem; }
.prose.item { text-indent: -1.2rem; } .prose.item .mark { display: inline-block; min-width: 1.2rem; text-indent: 0; }
.prose code { font: .875em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: rgba(127, 127, 127, .16);
  border-radius: .25rem; padding: .05em .3em; }
.cite { font-size: .85em; font-weight: 600; text-decoration: none; padding: 0 .1em; }
.cite:hover { text-decoration: underline; }
.tool { border: 1px solid var(--edge); border-radius: .5rem; background: var(--surface); width: 100%;
  max-width: 44rem; }
.tool .q-item { min-height: 2.5rem; padding: .25rem .75rem; font-size: .9rem; }
.tool .q-item__section--avatar { min-width: 0; padding-right: .75rem; } .tool .q-icon { font-size: 1.15rem; }
.tool .q-item__label--caption { color: var(--quiet); line-height: 1.3 !important; }
.tool .q-expansion-item__content > * { padding: .25rem .75rem .75rem; }
/* Mermaid draws diagrams for a light background in both themes. */
.graph { padding: .5rem 0; } .body--dark .graph svg { filter: invert(.9) hue-rotate(180deg); }
.composer { position: sticky; bottom: 0; background: var(--ground); display: flex; gap: .6rem; align-items: flex-end;
  padding: .5rem 0 1rem; width: 100%; z-index: 1; margin-bottom: -1.25rem; }
.composer .q-textarea { flex: 1; min-width: 0; } .composer .q-field__control { background: var(--surface); }
.strong { font-weight: 600; }
.message { border-left: 3px solid var(--edge); padding: .35rem 0 .35rem .9rem; display: flex; flex-direction: column;
  gap: .25rem; min-width: 0; width: 100%; scroll-margin: 5rem; }
.message.user { border-color: var(--link); }
.message.lit { background: var(--lit); border-radius: .4rem; padding-right: .5rem; outline: none; }
.message .who { font-weight: 600; font-size: .9rem; }
.place { display: flex; gap: .75rem; align-items: center; padding: .5rem .75rem; border-radius: .5rem;
  color: inherit; text-decoration: none; }
.place:hover { background: rgba(127, 127, 127, .1); }
.place[aria-current] { background: rgba(127, 127, 127, .16); font-weight: 600; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; z-index: 9999; background: var(--surface); padding: .5rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.q-field__native { color: var(--ink) !important; } .q-field__label { color: var(--quiet); }
.q-field--focused .q-field__label { color: var(--link) !important; }
.body--dark .text-primary:not(.bg-primary) { --q-primary: var(--link); }
.q-field--outlined .q-field__control:before { border-color: var(--edge); }
.q-dialog .q-card { background: var(--surface); color: var(--ink); max-width: 46rem; }
@media (max-width: 600px) {
  .nicegui-content { padding: .75rem; } .composer { margin-bottom: -.75rem; padding-bottom: .75rem; }
  .main:has(> .composer) { min-height: calc(100dvh - 3.25rem - 1.5rem); }
  .whose { max-width: 7rem; } .card { padding: .75rem; }
}
@media (prefers-reduced-motion: reduce) { * { transition: none !important; animation: none !important; } }
.stack { display: flex; flex-direction: column; gap: .75rem; width: 100%; min-width: 0; }
.stack.tight { gap: .35rem; } .stack > .q-btn { align-self: flex-start; }
.body--dark input[type=date] { color-scheme: dark; }
.line { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem .75rem; width: 100%; min-width: 0; }
.line > .wide { flex: 1 1 14rem; min-width: 0; } .line > .some { flex: 0 1 11rem; min-width: 8rem; }
.actions { display: flex; flex-wrap: wrap; gap: .25rem; margin-left: auto; }
.head2 { font-size: 1.05rem; font-weight: 600; margin: .75rem 0 0; line-height: 1.3; width: 100%; }
.chip { border: 1px solid var(--edge); border-radius: 1rem; padding: .05rem .6rem; font-size: .8rem;
  max-width: 100%; overflow-wrap: anywhere; }
.chip.good { border-color: var(--good); color: var(--good); } .chip.bad { border-color: var(--bad); color: var(--bad); }
.chip.wait { border-color: var(--warn); color: var(--warn); }
.over { text-decoration: line-through; opacity: .75; }
.atom-text { font-size: 1.02rem; line-height: 1.45; white-space: pre-wrap; overflow-wrap: anywhere; }
.go { color: inherit; text-decoration: underline; text-decoration-color: var(--edge); text-underline-offset: .2em; }
.go:hover { text-decoration-color: currentcolor; }
.go.plain { text-decoration: none; } .go.plain:hover { text-decoration: underline; }
.empty { border: 1px dashed var(--edge); border-radius: .75rem; padding: 2rem 1.25rem; width: 100%; text-align: center;
  display: flex; flex-direction: column; align-items: center; gap: .6rem; }
.pairs { display: grid; grid-template-columns: minmax(6rem, 20%) minmax(0, 1fr); gap: .4rem 1rem; width: 100%; }
.pairs > :nth-child(odd) { color: var(--quiet); font-size: .9rem; }
.pairs > :nth-child(even) { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; width: 100%; }
.facts { border-collapse: collapse; width: 100%; }
.facts th, .facts td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--edge);
  vertical-align: top; overflow-wrap: anywhere; }
.facts th { font-weight: 600; font-size: .85rem; color: var(--quiet); }
.facts .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.meter { height: .35rem; border-radius: .2rem; background: var(--edge); width: 5rem; overflow: hidden; }
.meter > div { height: 100%; background: var(--q-primary); }
.dialog { width: 34rem; max-width: 100%; gap: .75rem; }
.dialog .dialog-title { font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere; }
.full { width: 100%; }
.q-notification .q-btn { color: inherit !important; }
.pick { min-width: 0; max-width: 100%; }
.pick .q-field__native span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
"""
