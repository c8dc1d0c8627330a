/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TELEMETRY_H
#define KVR_TELEMETRY_H

/**
 * @file
 * Commands on DPDK's telemetry socket: one table per library or program, explicit registration.
 *
 * rte_telemetry runs callbacks on its own threads (one per connection) and passes no user pointer.
 * This library maps a path to its handler and argument, and holds one lock around every handler.
 * The control thread takes the same lock while it changes data that handlers read, so a handler
 * never sees a partial change and needs no lock of its own. Packet lcores do not use this library.
 *
 * A handler that returns a negative number makes the client print null without a reason;
 * kvr_telemetry_error() answers {"error": "EINVAL", "message": "..."} instead.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rte_tel_data;

/** Fill @p d; @p params is never NULL. Return 0, or what kvr_telemetry_error() returned. */
typedef int (*kvr_telemetry_handler_t)(void *arg, const char *params, struct rte_tel_data *d);

/** One command; a table ends with path NULL. The table must outlive its registration. */
struct kvr_telemetry_cmd {
	const char *path;   /* "/kvroute/pools": [a-z0-9_/], below 56 characters */
	const char *params; /* "ID[,force]"; NULL = no parameters, enforced by the library */
	const char *help;   /* one line */
	kvr_telemetry_handler_t handler;
	bool acts; /* changes state: reported to kvr_telemetry_on_act() */
};

#define KVR_TELEMETRY_MAX_CMDS 128u

/**
 * Register all commands of @p table with @p arg. Before or after rte_eal_init(). Control thread. A
 * path that was unregistered may be registered again.
 * @return 0; -EEXIST a path is taken; -EINVAL bad path or no handler; -ENOSPC. On error no command
 * of the table is registered.
 */
int kvr_telemetry_register(const struct kvr_telemetry_cmd *table, void *arg);

/**
 * Unregister the commands. Waits for a running handler; afterwards no handler runs with their
 * argument. The socket still lists the paths (rte_telemetry cannot remove one) and answers
 * ESHUTDOWN.
 */
void kvr_telemetry_unregister(const struct kvr_telemetry_cmd *table);

/**
 * Call @p fn after every command that changes state, under the lock. @p error is the text of
 * kvr_telemetry_error() ("EINVAL: expected a worker id"), or NULL on success. NULL: no callback.
 * Control thread.
 */
void kvr_telemetry_on_act(void (*fn)(const char *path, const char *params, const char *error));

/** The lock around handlers. Control thread, never a packet lcore; not recursive. */
void kvr_telemetry_lock(void);
void kvr_telemetry_unlock(void);

/**
 * Bounds the load of telemetry on packet lcores: at most KVR_TELEMETRY_BURST commands at once, then
 * one per KVR_TELEMETRY_EACH_NS. Other commands wait on their own thread.
 */
#define KVR_TELEMETRY_BURST   100u
#define KVR_TELEMETRY_EACH_NS UINT64_C(2000000)

/**
 * Admit a command at @p now_ns. @p last_ns is the time slot of the previous command and becomes
 * that of this one. One caller at a time. @return ns to wait.
 */
uint64_t kvr_telemetry_pace(uint64_t *last_ns, uint64_t now_ns);

/**
 * Run the handler of @p path without a socket.
 * @return the handler's result; an unknown path answers ENOENT through kvr_telemetry_error().
 */
int kvr_telemetry_call(const char *path, const char *params, struct rte_tel_data *d);

/**
 * Replace the answer by {"error": name of the errno, "message": text}. @p err may be positive or
 * negative.
 * @return 0, for `return kvr_telemetry_error(d, EINVAL, ...)`.
 */
int kvr_telemetry_error(struct rte_tel_data *d, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define KVR_TELEMETRY_MAX_ARGS 16u

/** Parameters split at commas, without surrounding blanks. */
struct kvr_telemetry_args {
	unsigned int n;
	const char *v[KVR_TELEMETRY_MAX_ARGS]; /* into text */
	char text[512];
};

/**
 * Split @p params; "" yields n = 0.
 * @return 0; -E2BIG too many or too long.
 */
int kvr_telemetry_args(struct kvr_telemetry_args *args, const char *params);

/**
 * Argument @p i as a number in [min, max], decimal or 0x.
 * @return 0; -ENOENT not given; -EINVAL not a number; -ERANGE.
 */
int kvr_telemetry_arg_u64(const struct kvr_telemetry_args *args, unsigned int i, uint64_t min,
			  uint64_t max, uint64_t *out);

/** Argument @p i, or NULL if it is missing or empty. */
const char *kvr_telemetry_arg(const struct kvr_telemetry_args *args, unsigned int i);

/** True if @p flag is among the arguments from @p first on. */
bool kvr_telemetry_arg_has(const struct kvr_telemetry_args *args, unsigned int first,
			   const char *flag);

/**
 * Make a key of a dictionary from a name: rte_telemetry allows letters, digits, '_', '/', '[' and
 * ']', and every other character becomes '_'. Any thread.
 * @return @p key, at most @p len bytes including the terminator.
 */
const char *kvr_telemetry_key(char *key, size_t len, const char *name);

/**
 * Add a dictionary or array to a dictionary, under kvr_telemetry_key() of @p name. @p part then
 * belongs to @p d, and is freed on error; NULL adds nothing. Any thread.
 * @return 0; -ENOMEM no @p part; -ENOSPC, -E2BIG, -EINVAL from rte_telemetry.
 */
int kvr_telemetry_dict_part(struct rte_tel_data *d, const char *name, struct rte_tel_data *part);

/**
 * Add a text to a dictionary, under kvr_telemetry_key() of @p name: a string, or, above 127
 * characters, an array of parts that yield the text when concatenated. A part ends after a blank, a
 * comma or a slash if possible. Any thread.
 * @return 0; -ENOMEM; -ENOSPC, -EINVAL from rte_telemetry.
 */
int kvr_telemetry_dict_text(struct rte_tel_data *d, const char *name, const char *text);

/** Add a floating point value to a dictionary, as text: the socket has integers only. */
int kvr_telemetry_dict_f64(struct rte_tel_data *d, const char *name, double v, int decimals);

#endif
