// A small tokenizer for the languages of configuration files. It works line by line: what a line
// begins inside of, such as a comment, is its state.

/** @typedef {[RegExp, string, string?]} Rule a pattern, what it is, and the state after it */

const placeholder = /%[A-Z][A-Z0-9_]*%|\$\{[^}\s]*\}/y;
const number = /[-+]?(?:0x[0-9a-fA-F_]+|(?:\d[\d_]*)(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])/y;
const quoted = /"(?:\\.|[^"\\])*"?/y;
const single = /'(?:[^']|'')*'?/y;

/** @type {Record<string, Record<string, Rule[]>>} */
const languages = {
	plain: { main: [[placeholder, "var"]] },
	json: {
		main: [[/\/\/.*/y, "comment"], [/"(?:\\.|[^"\\])*"(?=\s*:)/y, "key"], [quoted, "string"], [number, "number"], [/(?:true|false|null)\b/y, "word"], [placeholder, "var"], [/[{}[\],:]/y, "mark"]],
	},
	yaml: {
		main: [[/#.*/y, "comment"], [/---|\.\.\./y, "mark"], [/"(?:\\.|[^"\\])*"(?=\s*:(?:\s|$))/y, "key"], [/'(?:[^']|'')*'(?=\s*:(?:\s|$))/y, "key"], [quoted, "string"], [single, "string"], [/[^\s#:,{}[\]'"&*!|>-][^#:,{}[\]'"]*?(?=\s*:(?:\s|$))/y, "key"], [placeholder, "var"], [/[&*][\w-]+|![\w!/]*/y, "var"], [/(?:true|false|yes|no|on|off|null|~)(?=\s|,|\]|\}|$)/iy, "word"], [number, "number"], [/[-?:,{}[\]|>]/y, "mark"]],
	},
	toml: {
		main: [[/#.*/y, "comment"], [/\[\[?[^\]]*\]\]?(?=\s*(?:#|$))/y, "section"], [/"""/y, "string", "text"], [/'''/y, "string", "literal"], [/(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"))*(?=\s*=)/y, "key"], [quoted, "string"], [/'[^']*'?/y, "string"], [/\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[-+]\d\d:\d\d)?)?/y, "number"], [number, "number"], [/(?:true|false|inf|nan)\b/y, "word"], [placeholder, "var"], [/[[\]{}=,]/y, "mark"]],
		text: [[/(?:\\.|(?!""").)*"""/y, "string", "main"], [/.+/y, "string"]],
		literal: [[/(?:(?!''').)*'''/y, "string", "main"], [/.+/y, "string"]],
	},
	properties: {
		main: [[/^\s*[#!;].*/y, "comment"], [/^\s*\[[^\]]*\]\s*$/y, "section"], [/^\s*(?:\\.|[^\s=:\\])+/y, "key"], [/[=:]/y, "mark", "value"], [placeholder, "var"]],
		value: [[placeholder, "var"], [/(?:true|false)\s*$/y, "word"], [/-?\d+(?:\.\d+)?\s*$/y, "number"], [/(?:(?!%[A-Z]|\$\{).)+/y, "string"]],
	},
	sh: {
		main: [[/#.*/y, "comment"], [/"/y, "string", "double"], [/'/y, "string", "single"], [/\$(?:\{[^}]*\}|\w+|[@*#?$!-])/y, "var"], [placeholder, "var"], [/(?:if|then|else|elif|fi|for|in|do|done|while|until|case|esac|function|return|exit|exec|export|local|set|shift|trap|cd|source)(?![\w-])/y, "word"], [/[A-Za-z_]\w*(?==)/y, "key"], [number, "number"], [/[\w./-]+/y, ""], [/[|&;()<>{}[\]=!]+/y, "mark"]],
		double: [[/"/y, "string", "main"], [/\$(?:\{[^}]*\}|\w+|[@*#?$!-])/y, "var"], [/(?:\\.|[^"\\$])+/y, "string"]],
		single: [[/'/y, "string", "main"], [/[^']+/y, "string"]],
	},
	xml: {
		main: [[/<!--/y, "comment", "comment"], [/<!\[CDATA\[/y, "mark", "cdata"], [/<[?!][^>]*>?/y, "word"], [/<\/?[\w:.-]+/y, "key", "tag"], [/&[\w#]+;/y, "var"], [placeholder, "var"]],
		comment: [[/(?:(?!-->).)*-->/y, "comment", "main"], [/.+/y, "comment"]],
		cdata: [[/(?:(?!\]\]>).)*\]\]>/y, "string", "main"], [/.+/y, "string"]],
		tag: [[/\/?>/y, "key", "main"], [/[\w:.-]+(?=\s*=)/y, "section"], [/"[^"]*"?|'[^']*'?/y, "string"], [/=/y, "mark"]],
	},
};

const endings = { yml: "yaml", yaml: "yaml", json: "json", json5: "json", mcmeta: "json", toml: "toml", properties: "properties", ini: "properties", cfg: "properties", conf: "properties", env: "properties", sh: "sh", bash: "sh", xml: "xml", html: "xml", svg: "xml" };

/** languageOf returns the language of a file by its name. */
export function languageOf(path) {
	const name = path.slice(path.lastIndexOf("/") + 1);
	return endings[name.slice(name.lastIndexOf(".") + 1).toLowerCase()] ?? "plain";
}

/** longest is the length of the longest line that is looked at. */
export const longest = 5000;

/**
 * tokens splits a line into [what it is, text] and returns the state that the next line begins with.
 * @param {string} language
 * @param {string} line
 * @param {string} state of the line, "main" for the first
 * @returns {{list: [string, string][], state: string}}
 */
export function tokens(language, line, state) {
	const states = languages[language] ?? languages.plain;
	/** @type {[string, string][]} */
	const list = [];
	if (line.length > longest) return { list: [["", line]], state };
	let plain = 0, at = 0;
	next: while (at < line.length) {
		for (const [pattern, kind, then] of states[state]) {
			pattern.lastIndex = at;
			const found = pattern.exec(line);
			if (!found || found[0] === "") continue;
			if (plain < at) list.push(["", line.slice(plain, at)]);
			list.push([kind, found[0]]);
			at += found[0].length;
			plain = at;
			if (then) state = then;
			continue next;
		}
		// A word that no rule begins with is passed as a whole, so that a rule does not match inside of it.
		const word = /\w/.test(line[at]) ? /\w+/y : null;
		if (word) {
			word.lastIndex = at;
			at += word.exec(line)?.[0].length ?? 1;
		} else at++;
	}
	if (plain < line.length) list.push(["", line.slice(plain)]);
	// A value of properties ends with its line.
	return { list, state: state === "value" ? (line.endsWith("\\") ? "value" : "main") : state === "tag" && language !== "xml" ? "main" : state };
}
