// Files and texts that leave the page, and files that come to it.
import { t } from "../core/text.js";
import { saveBlob } from "./download.js";
import { say } from "./ui.js";

/** saveText saves a text as a file. */
export function saveText(text, name, type = "text/plain") {
	saveBlob(new Blob([text], { type }), name);
}

/** copy puts a text on the clipboard and says so. */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		// Browsers give the clipboard only to pages over TLS or of this machine.
		const area = document.createElement("textarea");
		area.value = text;
		(document.querySelector("dialog[open]") ?? document.body).append(area);
		area.select();
		const done = document.execCommand("copy");
		area.remove();
		if (!done) return say(t("transfer.notCopied"), { tone: "bad" });
	}
	say(t("copied"));
}

/**
 * dropped returns the files of a drop, with those in dropped directories. Each has its path.
 * @param {DataTransfer} transfer
 * @returns {Promise<{path: string, file: File}[]>}
 */
export async function dropped(transfer) {
	const entries = [...transfer.items].map((i) => i.webkitGetAsEntry?.()).filter(Boolean);
	if (entries.length === 0) return [...transfer.files].map((file) => ({ path: file.name, file }));
	const found = [];
	const walk = async (entry) => {
		if (entry.isFile) {
			const file = await new Promise((done, failed) => entry.file(done, failed));
			found.push({ path: entry.fullPath.replace(/^\//, ""), file });
			return;
		}
		const reader = entry.createReader();
		for (;;) {
			const some = await new Promise((done, failed) => reader.readEntries(done, failed));
			if (some.length === 0) return;
			for (const e of some) await walk(e);
		}
	};
	for (const e of entries) await walk(e);
	return found;
}

/**
 * dropZone returns the handlers of an element that takes dropped files. over(true) is called while
 * files are held over it.
 * @param {(files: {path: string, file: File}[]) => any} take
 * @param {(over: boolean) => void} over
 */
export function dropZone(take, over) {
	const has = (ev) => [...(ev.dataTransfer?.types ?? [])].includes("Files");
	return {
		ondragover: (ev) => {
			if (!has(ev)) return;
			ev.preventDefault();
			over(true);
		},
		ondragleave: (ev) => {
			if (!ev.currentTarget.contains(ev.relatedTarget)) over(false);
		},
		ondrop: async (ev) => {
			if (!has(ev)) return;
			ev.preventDefault();
			over(false);
			take(await dropped(ev.dataTransfer));
		},
	};
}
