// Several consoles side by side. The address names the instances.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { route, setQuery } from "../core/router.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { Console } from "../parts/console.js";
import { compare } from "../parts/list.js";
import { button, empty, heading, loading } from "../parts/ui.js";

const mostConsoles = 8;
const byName = live.derived(["instances"], () => [...live.instances.values()].sort((a, b) => compare(a.id, b.id)));

export default class Consoles {
	view() {
		if (!live.state.loaded) return loading();
		const wanted = (route().query.get("show") ?? "").split(",").filter(Boolean);
		const all = byName();
		const shown = wanted.map((name) => all.find((i) => i.id === name || i.uid === name)).filter(Boolean).slice(0, mostConsoles);
		const set = (list) => setQuery({ show: list.join(",") });
		const names = shown.map((i) => i.id);
		const rest = all.filter((i) => !names.includes(i.id));
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.console"), { actions: [rest.length && shown.length < mostConsoles ? h("select", { "aria-label": t("console.add"), value: "", onchange: (ev) => { if (ev.target.value) set([...names, ev.target.value]); ev.target.value = ""; } }, h("option", { value: "" }, t("console.add")), rest.slice(0, 500).map((i) => h("option", { value: i.id }, i.id))) : null] }),
			shown.length === 0 ? empty(t("console.none"), t("console.none.text")) : h("div", { class: "consoles" }, shown.map((i) => h("section", { class: "card", key: i.uid, "aria-label": visible(i.id) }, h(Console, { instance: i, bare: true }), button({ label: t("console.remove", { name: i.id }), kind: "small quiet", onclick: () => set(names.filter((n) => n !== i.id)) })))),
		);
	}
}
