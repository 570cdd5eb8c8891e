package durable

// Publish is what RenameNoReplace does where the kernel has no such rename.
var Publish = publish
