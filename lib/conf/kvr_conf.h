/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CONF_H
#define KVR_CONF_H

/**
 * @file
 * Options declared as tables beside the code that uses them: name, type, range, default, unit,
 * help. Parsing, defaults, range checks, error messages, --dump-config and the documentation all
 * derive from the table. Start-up and control thread only.
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
/**
 * An alias of another name (usually with its offset), kept for old files: parsed, reported as
 * deprecated by kvr_conf_load(), omitted from the dump, without a default.
 */
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
	/*
	 * ENUM that is a preset: the keys that each choice sets in the same table; NULL = no
	 * preset. Keys that a file sets beside a preset win, wherever they stand. The default
	 * choice sets nothing.
	 */
	const struct kvr_opt_set *const *sets;
};

/** The option called @p name, or NULL. */
const struct kvr_opt *kvr_conf_find(const struct kvr_opt *table, const char *name);

/** Store every default into @p obj. Aborts if a default does not parse (programming error). */
void kvr_conf_defaults(const struct kvr_opt *table, void *obj);

/**
 * Parse @p value into the field of @p name.
 * @return 0; -ENOENT unknown name; -EINVAL malformed; -ERANGE out of range or too long. On error
 * nothing is stored and @p err describes the allowed values.
 */
int kvr_conf_set(const struct kvr_opt *table, void *obj, const char *name, const char *value,
		 char *err, size_t errlen);

/** Print `name = value  # unit, help` for every option of @p obj. */
void kvr_conf_dump(const struct kvr_opt *table, const void *obj, FILE *out);

/** Print one option's value in the syntax of kvr_conf_set(). @return the result of snprintf(). */
int kvr_conf_print(const struct kvr_opt *opt, const void *obj, char *buf, size_t len);

/**
 * Parse a program's arguments into @p obj, after the defaults: `--name value` or `--name=value` for
 * each option (BOOL without value), and --help. The last occurrence of an option wins, so that a
 * caller can override the arguments of a script (a file rejects a repeated key). Uses
 * getopt_long(): one thread.
 * @return 1; 0: help was requested; -EINVAL or -ENOMEM with one line in @p err.
 */
int kvr_conf_args(const struct kvr_opt *table, void *obj, int argc, char **argv, char *err,
		  size_t errlen);

/**
 * The same for programs that also take words, in any position. On return the words start at
 * argv[*first].
 */
int kvr_conf_args_rest(const struct kvr_opt *table, void *obj, int argc, char **argv, int *first,
		       char *err, size_t errlen);

/**
 * Return true if --version is among the arguments, and print `name version`. Call it before
 * parsing.
 */
bool kvr_conf_version(int argc, char **argv, const char *name, FILE *out);

/**
 * Print the table for --help: name in @p width characters, help, choices, and the value of @p obj
 * with its unit.
 */
void kvr_conf_args_help(const struct kvr_opt *table, const void *obj, int width, FILE *out);

/**
 * A section of the INI file. `name` is matched whole; a name that ends in a blank ("pool ") is a
 * prefix, followed by the name of the instance. `get` returns the object to fill (instance ""
 * without prefix), or NULL with errno: EEXIST given twice, ENOSPC too many, EINVAL bad name.
 */
struct kvr_conf_section {
	const char *name;
	const struct kvr_opt *table;
	void *(*get)(void *arg, const char *instance);
};

#define KVR_CONF_MAX_BYTES (1u << 20) /* bytes of a file */
#define KVR_CONF_MAX_KEY   63u	      /* characters of a section's name or a key */
#define KVR_CONF_MAX_VALUE 4095u      /* characters of a value, and of a list */

/**
 * Read @p path and fill the objects of its sections; get() sets their defaults. ';' and '#' start a
 * comment anywhere in a line. A section may appear once, and so may a key unless it is a list
 * (KVR_OPT_F_LIST). An error is one line in @p err with file, line, key and the allowed values:
 * `kvroute.conf:12: [port p0] queues: got "0", allowed: 1 to 64 queues`. Needs no EAL.
 * @return 0, with @p err empty or one line about the first deprecated key; -errno of the file;
 * -EINVAL syntax or value; -ENOENT no such file, unknown section or key; -EEXIST repeated; -ERANGE;
 * -EFBIG; or the errno of get(), negated.
 */
int kvr_conf_load(const char *path, const struct kvr_conf_section *sections, void *arg, char *err,
		  size_t errlen);

/**
 * Report a fault found after loading: write `file:line: [section] key: <message>` into @p err. The
 * line is found by reading @p path again: that of the last entry of @p key, else that of the
 * section, else none. @p section is the whole name ("pool a"); @p key may be NULL.
 */
void kvr_conf_blame(const char *path, const char *section, const char *key, char *err,
		    size_t errlen, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/** kvr_conf_blame() for libraries that report `key: message`, as kvr_port_create() does. */
void kvr_conf_blame_line(const char *path, const char *section, const char *line, char *err,
			 size_t errlen);

#endif
