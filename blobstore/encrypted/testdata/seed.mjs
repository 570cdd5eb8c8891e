// Blobs in the seed's form, made by an implementation that is not ours: the WebCrypto of
// node. With no argument it prints vectors, which seed.json keeps; the nonces are fixed so
// that they stay the same. With "open" it reads vectors from standard input, and fails
// unless it can decrypt each.
//
//	node seed.mjs > seed.json
//	node seed.mjs open < vectors
import { webcrypto as crypto, createHash } from "node:crypto";

const hex = (bytes) => Buffer.from(bytes).toString("hex");

async function keyOf(passphrase) {
	const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(passphrase));
	return crypto.subtle.importKey("raw", hash, "AES-GCM", false, ["encrypt", "decrypt"]);
}

async function make() {
	const vectors = [];
	const passphrases = ["correct horse battery staple", "x", "Zürich 東京 🔑", " spaces at both ends "];
	const sizes = [0, 1, 15, 16, 17, 1000];
	for (const [i, passphrase] of passphrases.entries()) {
		for (const size of sizes) {
			const plain = Uint8Array.from({ length: size }, (_, k) => (k * 7 + i * 31 + size) & 0xff);
			const iv = createHash("sha256").update(`nonce ${i} ${size}`).digest().subarray(0, 12);
			const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, await keyOf(passphrase), plain);
			vectors.push({
				passphrase,
				id: hex(await crypto.subtle.digest("SHA-256", plain)),
				plain: hex(plain),
				blob: hex(iv) + hex(sealed),
			});
		}
	}
	console.log(JSON.stringify(vectors, null, "\t"));
}

async function open() {
	let text = "";
	for await (const part of process.stdin) text += part;
	for (const v of JSON.parse(text)) {
		const blob = Buffer.from(v.blob, "hex");
		const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv: blob.subarray(0, 12) }, await keyOf(v.passphrase), blob.subarray(12));
		if (hex(plain) !== v.plain) throw new Error(`${v.id}: other plaintext`);
		if (hex(await crypto.subtle.digest("SHA-256", plain)) !== v.id) throw new Error(`${v.id}: other id`);
	}
}

await (process.argv[2] === "open" ? open() : make());
