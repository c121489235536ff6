// The reader's own settings, and those of the control plane.
import { h, redraw } from "../core/dom.js";
import { link, route } from "../core/router.js";
import * as session from "../core/session.js";
import { language, languages, t, useLanguage } from "../core/text.js";
import { card, heading, tabs } from "../parts/ui.js";
import { Catalog } from "./settings-catalog.js";
import { Cluster } from "./settings-cluster.js";
import { Gateways } from "./settings-gateways.js";
import { Logs } from "./settings-logs.js";
import { Notices } from "./settings-notices.js";
import { Profile } from "./settings-profile.js";
import { Quotas } from "./settings-quotas.js";
import { Secrets } from "./settings-secrets.js";
import { Shares } from "./settings-shares.js";

const parts = {
	profile: { make: Profile },
	appearance: { make: null },
	catalog: { make: Catalog, needs: ["catalog.view"] },
	secrets: { make: Secrets, needs: ["system.settings"] },
	quotas: { make: Quotas, needs: ["quotas.view"] },
	notices: { make: Notices, needs: ["system.settings"] },
	shares: { make: Shares, needs: ["share.invoke"] },
	gateways: { make: Gateways, needs: ["cluster.view"] },
	cluster: { make: Cluster, needs: ["cluster.view", "groups.view"] },
	logs: { make: Logs, needs: ["system.logs.view"] },
};

const themeKey = "orrery.theme";

export default class Settings {
	view() {
		const shown = Object.keys(parts).filter((id) => !parts[id].needs || parts[id].needs.some((p) => session.allowed(p)));
		const wanted = route().query.get("tab") ?? "profile", tab = shown.includes(wanted) ? wanted : "profile";
		return h("div", { class: "page" },
			heading(t("nav.settings")),
			tabs(shown.map((id) => ({ id, label: t("settings." + id), href: link(["settings"], { tab: id === "profile" ? "" : id }) })), tab),
			tab === "appearance" ? appearance() : h(parts[tab].make, { key: tab }),
		);
	}
}

function appearance() {
	const theme = localStorage.getItem(themeKey) ?? "system";
	const choose = (value) => {
		if (value === "system") {
			localStorage.removeItem(themeKey);
			delete document.documentElement.dataset.theme;
		} else {
			localStorage.setItem(themeKey, value);
			document.documentElement.dataset.theme = value;
		}
		redraw();
	};
	return h("div", { class: "grid wide" },
		card(t("settings.colours"), null, h("fieldset", { class: "bare" }, h("legend", { class: "hidden" }, t("settings.colours")), ["system", "light", "dark"].map((v) => h("label", { class: "check", key: v }, h("input", { type: "radio", name: "theme", value: v, checked: theme === v, onchange: () => choose(v) }), h("span", null, t("settings.theme." + v)))))),
		card(t("settings.language"), null, h("fieldset", { class: "bare" }, h("legend", { class: "hidden" }, t("settings.language")), Object.entries(languages).map(([tag, name]) => h("label", { class: "check", key: tag, lang: tag }, h("input", { type: "radio", name: "language", value: tag, checked: language() === tag, onchange: () => useLanguage(tag) }), h("span", null, name))))),
	);
}
