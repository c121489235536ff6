// A deployment with its progress and what can be done to it.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link } from "../core/router.js";
import { allowedEverywhere } from "../core/session.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { groupDryRun } from "./actions.js";
import { age, attempt, badge, bar, button } from "./ui.js";

/**
 * deploymentCard draws a deployment.
 * @param {any} d
 * @param {() => any} reload
 * @param {boolean} [named] shows the name of the group
 */
export function deploymentCard(d, reload, named) {
	const path = api.url`/api/v1/groups/${d.groupName}/deployments/${String(d.revision)}`;
	const control = (verb, kind) => button({ label: t("deployment." + verb), kind, needs: "groups.update", group: d.groupName, onclick: () => attempt(() => api.post(path + "/" + verb), t("deployment." + verb + ".done")).then(reload) });
	// A dialog has a button "Cancel" of its own.
	const ask = (verb, kind, label = t("deployment." + verb)) => button({ label: t("deployment." + verb), kind, needs: "groups.update", group: d.groupName, onclick: () => confirm({ title: t("deployment." + verb + ".title", { name: d.groupName }), text: h("p", null, t("deployment." + verb + ".text")), label, danger: kind === "danger", preview: () => api.post(path + "/" + verb, undefined, { dryRun: true }), show: groupDryRun, act: async () => { await api.post(path + "/" + verb); reload(); } }) });
	const active = d.state === "IN_PROGRESS" || d.state === "PAUSED";
	const gated = d.strategy !== "ROLLING" && !d.promoted;
	return h(
		"article",
		{ class: "card", key: d.id },
		h(
			"header",
			{ class: "card-head" },
			h("div", { class: "row" }, h("h2", null, named ? h("a", { href: link(["groups", d.groupName], { tab: "deployments" }) }, visible(d.groupName)) : null, named ? " · " : "", t("deployment.number", { number: d.revision })), badge(d.state), h("span", { class: "tag" }, t("deployment.trigger." + d.trigger)), h("span", { class: "tag" }, t("deployment.strategy." + d.strategy))),
			h(
				"div",
				{ class: "row" },
				d.state === "IN_PROGRESS" ? control("pause") : null,
				d.state === "PAUSED" ? control("resume", "primary") : null,
				active && gated ? ask("promote", "primary") : null,
				active ? ask("cancel", "danger", t("deployment.cancel.do")) : null,
				allowedEverywhere("groups.update") && (d.revision > 1 || !active) ? ask("rollback", "danger") : null,
			),
		),
		bar(d.totalInstances ? d.updatedInstances / d.totalInstances : d.state === "COMPLETED" ? 1 : 0, t("deployment.progress", { done: d.updatedInstances, all: d.totalInstances }), true),
		h("div", { class: "row" }, h("span", null, t("deployment.progress", { done: d.updatedInstances, all: d.totalInstances })), d.failedInstances ? h("span", { class: "badge bad" }, t("deployment.failed", { count: d.failedInstances })) : null, d.message ? h("span", { class: "muted" }, visible(d.message)) : null, h("span", { class: "grow" }), h("span", { class: "muted small" }, visible(d.createdBy), " · ", age(d.createdAt), d.completedAt ? [" · ", t("deployment.ended"), " ", age(d.completedAt)] : null)),
	);
}
