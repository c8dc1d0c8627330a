/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CONF_H
#define KVR_CONF_H

/**
 * @file
 * Options declared as tables beside the code that uses them: name, type, range, default, unit,
 * help. Parsing, defaults, range checks, error texts, --dump-config and the documentation all
 * come from the one table. Control thread and start-up only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum kvr_opt_type {
	KVR_OPT_BOOL,	/* bool: true/false, yes/no, on/off, 1/0 */
	KVR_OPT_U32,	/* uint32_t in [min, max] */
	KVR_OPT_U64,	/* uint64_t in [min, max]; suffixes k, M, G (powers of 1024) */
	KVR_OPT_F64,	/* double in [min, max], finite */
	KVR_OPT_ENUM,	/* int: index into choices[] */
	KVR_OPT_STRING, /* char[size], shorter than size, printable; may be empty */
};

/** May be "none": stored as NaN (F64) or all ones (U32, U64). */
#define KVR_OPT_F_NONE 0x1u
/** An alias of another name (usually the same offset), kept for old files: parsed, reported as
 * deprecated by kvr_conf_load(), left out of the dump, given no default. */
#define KVR_OPT_F_DEPRECATED 0x2u
/** A STRING that is a list: a file may repeat the key, and the values are joined by blanks. */
#define KVR_OPT_F_LIST 0x4u

/** A key and its value; a list ends with key NULL. */
struct kvr_opt_set {
	const char *key;
	const char *value;
};

/** One option; a table ends with name NULL. */
struct kvr_opt {
	const char *name;
	enum kvr_opt_type type;
	uint32_t flags;		    /* KVR_OPT_F_* */
	size_t offset;		    /* of the field in the configuration struct */
	size_t size;		    /* STRING: bytes of the array */
	double min, max;	    /* inclusive; both 0 = no limit but the type's */
	const char *def;	    /* default as text */
	const char *const *choices; /* ENUM: names, NULL-terminated */
	const char *unit;
	const char *help;
	/* ENUM: what each choice sets in the same table, NULL = it is no preset. In a file every
	 * key beside it wins, wherever it stands; its default sets nothing. */
	const struct kvr_opt_set *const *sets;
};

/** The option called @p name, or NULL. */
const struct kvr_opt *kvr_conf_find(const struct kvr_opt *table, const char *name);

/** Store every default into @p obj. A default that does not parse is a programming error: aborts.
 */
void kvr_conf_defaults(const struct kvr_opt *table, void *obj);

/**
 * Parse @p value into the field called @p name.
 * @return 0; -ENOENT unknown name; -EINVAL unparsable; -ERANGE outside the range or too long; on
 * error @p err says what is allowed, nothing is stored.
 */
int kvr_conf_set(const struct kvr_opt *table, void *obj, const char *name, const char *value,
		 char *err, size_t errlen);

/** Print `name = value  # unit, help` for every option, from @p obj. */
void kvr_conf_dump(const struct kvr_opt *table, const void *obj, FILE *out);

/** Print one option's value as kvr_conf_set() would take it; returns snprintf's result. */
int kvr_conf_print(const struct kvr_opt *opt, const void *obj, char *buf, size_t len);

/**
 * A program's arguments: `--name value` or `--name=value` of the table (a BOOL takes none), and
 * --help. Defaults first. Of an option that is given twice the last counts, so that who starts a
 * program through a script can overrule it (a file refuses a key that is there twice). Uses
 * getopt_long(): one thread.
 * @return 1; 0: help is asked for; -EINVAL or -ENOMEM with one line in @p err.
 */
int kvr_conf_args(const struct kvr_opt *table, void *obj, int argc, char **argv, char *err,
		  size_t errlen);

/** The same for programs that take words, too, before, between or behind the options: they stand
 * from argv[*first] on. */
int kvr_conf_args_rest(const struct kvr_opt *table, void *obj, int argc, char **argv, int *first,
		       char *err, size_t errlen);

/** Whether --version is among the arguments; prints `name version` then. Before anything else is
 * looked at. */
bool kvr_conf_version(int argc, char **argv, const char *name, FILE *out);

/** What --help shows of the table: name in @p width characters, help, choices, and the value that
 * @p obj has with its unit. */
void kvr_conf_args_help(const struct kvr_opt *table, const void *obj, int width, FILE *out);

/**
 * A section of the INI file. `name` is matched whole, or, when it ends in a blank ("pool "), as a
 * prefix whose rest is the instance's name. `get` returns the object the keys go to (instance is
 * "" without prefix), or NULL with errno (EEXIST: given twice, ENOSPC: too many, EINVAL: bad
 * name).
 */
struct kvr_conf_section {
	const char *name;
	const struct kvr_opt *table;
	void *(*get)(void *arg, const char *instance);
};

#define KVR_CONF_MAX_BYTES (1u << 20) /* of a file */
#define KVR_CONF_MAX_KEY   63u	      /* characters of a section's name or a key */
#define KVR_CONF_MAX_VALUE 4095u      /* characters of a value, and of a list */

/**
 * Read @p path and fill the objects of its sections (defaults are the caller's to set in get()).
 * ';' and '#' start a comment anywhere in a line. A section may appear once, and so may a key
 * that is not a list (KVR_OPT_F_LIST). Every problem ends with one line in @p err that names file,
 * line, key and what is allowed: `kvroute.conf:12: [port p0] queues: got "0", allowed: 1 to 64
 * queues`. Needs no EAL.
 * @return 0: @p err is empty, or one line about the first deprecated key; else -errno of the file;
 * -EINVAL syntax or value; -ENOENT unknown section or key (the file: -ENOENT too); -EEXIST
 * duplicate; -ERANGE; -EFBIG; or what get() said.
 */
int kvr_conf_load(const char *path, const struct kvr_conf_section *sections, void *arg, char *err,
		  size_t errlen);

/**
 * For checks after loading: write `file:line: [section] key: <message>` into @p err, the line
 * found by reading @p path again; without the key the section's line, without that no line.
 * @p section is the whole name ("pool a"), @p key may be NULL.
 */
void kvr_conf_blame(const char *path, const char *section, const char *key, char *err,
		    size_t errlen, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/** kvr_conf_blame() for libraries that answer `key: message`, as kvr_port_create() does. */
void kvr_conf_blame_line(const char *path, const char *section, const char *line, char *err,
			 size_t errlen);

#endif
