// The texts of the pages. English is the catalogue; other languages translate its keys.
import { english } from "../texts/en.js";
import { redraw } from "./dom.js";

export const languages = { en: "English", de: "Deutsch" };
const key = "orrery.language";

let texts = english;
let tag = "en";

/** language returns the tag of the language in use. */
export function language() {
	return tag;
}

/**
 * useLanguage loads a language and draws the pages in it.
 * @param {string} wanted a tag, or empty for the browser's
 */
export async function useLanguage(wanted) {
	if (wanted) localStorage.setItem(key, wanted);
	const chosen = wanted || localStorage.getItem(key) || navigator.language.slice(0, 2);
	tag = chosen === "de" ? "de" : "en";
	texts = tag === "de" ? { ...english, ...(await import("../texts/de.js")).german } : english;
	document.documentElement.lang = tag;
	redraw();
}

/**
 * t returns a text with its {names} replaced. With a count, the key's .one form is used for 1.
 * @param {string} name
 * @param {Record<string, any>} [values]
 */
export function t(name, values) {
	const one = values?.count === 1 ? texts[name + ".one"] : undefined;
	const text = one ?? texts[name] ?? name;
	return values ? text.replace(/\{(\w+)\}/g, (all, k) => (k in values ? String(values[k]) : all)) : text;
}
