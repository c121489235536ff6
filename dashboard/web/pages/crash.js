// One crash with the last lines that the server printed.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link } from "../core/router.js";
import { duration, time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { causeOf } from "../parts/describe.js";
import { spans } from "../parts/ansi.js";
import { shareButton } from "../parts/share.js";
import { card, facts, heading, Resource } from "../parts/ui.js";

export default class Crash {
	constructor({ path }) {
		this.id = path[1];
		this.crash = new Resource(() => api.get(api.url`/api/v1/crashes/${this.id}`));
	}

	view() {
		return h("div", { class: "page" }, this.crash.show((c) => [
			heading(causeOf(c), { crumbs: [[t("nav.crashes"), "#/crashes"]], actions: [h("a", { class: "button", href: link(["crashes"], { signature: c.signature, since: "168h" }) }, t("crash.same")), shareButton({ title: t("share.crash"), path: api.url`/api/v1/crashes/${this.id}/share` })] }),
			card(null, null, facts([t("crashes.instance"), h("a", { href: link(["instances", c.uid]) }, visible(c.instanceId))], [t("instances.group"), h("a", { href: link(["groups", c.group]) }, visible(c.group))], [t("instances.node"), h("a", { href: link(["nodes", c.nodeId ?? c.node]) }, visible(c.nodeId ?? c.node))], [t("crashes.when"), time(c.crashedAt)], [t("crashes.ran"), duration(c.uptimeMs)], [t("crashes.exit"), c.exitCode ?? visible(c.signal || "–")], [t("crash.class"), visible(c.classification)], [t("crash.signature"), h("code", null, visible(c.signature))]), c.message ? h("p", null, visible(c.message)) : null),
			card(t("crash.tail"), null, c.logTail?.length ? h("pre", { class: "console-view tail" }, c.logTail.map((l) => h("div", null, spans(l).map((s) => h("span", { class: s.class }, s.text))))) : h("p", { class: "muted" }, t("crash.noTail"))),
		]));
	}
}
