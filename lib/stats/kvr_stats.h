/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_STATS_H
#define KVR_STATS_H

/**
 * @file
 * Counters, declared as a table in the code that counts: name, unit, help, and the equations that
 * hold between them. Each writing lcore has its own row of counters, aligned so that no cache line
 * is shared; readers sum the rows. An addition is a load, an add and a store, without a locked
 * instruction, as a row has one writer.
 *
 * A library declares one list, from which enum and rows are generated:
 *
 * 	#define X_COUNTER_LIST(X) \
 * 		X(X_RX, rx, COUNT, "frames", "frames received") \
 * 		X(X_GOOD, good, COUNT, "frames", "frames kept") \
 * 		X(X_WAITING, waiting, GAUGE, "frames", "frames not checked yet")
 * 	enum x_counter { X_COUNTER_LIST(KVR_COUNTER_ENUM) X_N };
 *
 * 	static const struct kvr_counter x_rows[] = {
 * 		X_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END,
 * 	};
 * 	static const struct kvr_equation x_equations[] = {
 * 		{KVR_TERMS(X_RX), KVR_TERMS(X_GOOD, X_WAITING)},
 * 		{0},
 * 	};
 * 	const struct kvr_stats_def x_stats = {"x", x_rows, x_equations};
 *
 * The library calls kvr_stats_create() and gives each lcore its kvr_stats_row(); the lcore calls
 * kvr_stats_add(row, X_RX, n). A library whose object counts for itself has a struct of the same
 * list, which is a row:
 *
 * 	struct x_stats { X_COUNTER_LIST(KVR_COUNTER_FIELD) };
 *
 * It counts with kvr_cell_add(&obj->st.rx, n) and returns copies (kvr_stats_row_copy()).
 *
 * An equation holds for each row whenever its writer is between two bursts. A reader that sums
 * while writers run may see it violated by the items in flight. Check equations while the writers
 * are idle, or on copies that the owners made.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The value only grows. */
#define KVR_COUNTER_F_COUNT 0x0u
/** The value goes up and down (kvr_stats_sub, kvr_stats_set); exported as a gauge (kvr_metrics.h).
 */
#define KVR_COUNTER_F_GAUGE 0x1u

/*
 * Generators for a list of X(id, name, COUNT or GAUGE, "unit", "help"): enumerators, rows of a
 * table of struct kvr_counter, fields of a struct.
 */
#define KVR_COUNTER_ENUM(id, name, kind, unit, help) id,
#define KVR_COUNTER_ROW(id, name, kind, unit, help)                                                \
	[id] = {#name, unit, help, KVR_COUNTER_F_##kind},
#define KVR_COUNTER_END                                                                            \
	{                                                                                          \
		NULL, NULL, NULL, 0                                                                \
	}
#define KVR_COUNTER_FIELD(id, name, kind, unit, help) kvr_cell_t name;

/** One counter; a table ends with name NULL. */
struct kvr_counter {
	const char *name; /* [a-z0-9_]+, unique in its table */
	const char *unit; /* plural noun: "frames", "bytes", "cycles" */
	const char *help; /* one line, no full stop */
	uint32_t flags;	  /* KVR_COUNTER_F_* */
};

#define KVR_STATS_MAX  256u /* counters per table, the limit of a telemetry dictionary */
#define KVR_TERMS_END  UINT16_MAX
#define KVR_TERMS(...) ((const uint16_t[]){__VA_ARGS__, KVR_TERMS_END})

/**
 * The sum of the counters `left` equals the sum of the counters `right`; a table ends with NULL.
 * kvr_equation_text() makes its text from the names of the counters.
 */
struct kvr_equation {
	const uint16_t *left, *right; /* indexes, KVR_TERMS() */
};

/** The counters of a library. */
struct kvr_stats_def {
	const char *lib; /* name of the table */
	const struct kvr_counter *counters;
	const struct kvr_equation *equations; /* or NULL */
};

/** One cell; owner of the row: rw, others: ro. */
typedef _Atomic uint64_t kvr_cell_t;

struct kvr_stats;

/** Number of counters in the table of @p def. */
unsigned int kvr_stats_count(const struct kvr_stats_def *def);

/**
 * Create zeroed counters with one row for each of @p n_writers (at least 1).
 * @return the object, to be destroyed by the caller, or NULL with errno EINVAL (bad table) or
 *   ENOMEM.
 */
struct kvr_stats *kvr_stats_create(const struct kvr_stats_def *def, unsigned int n_writers);

/** Accepts NULL. No writer may be running. */
void kvr_stats_destroy(struct kvr_stats *stats);

/** Definition of the counters of @p stats. */
const struct kvr_stats_def *kvr_stats_def(const struct kvr_stats *stats);

/** The row of one writer, 0 .. n_writers - 1. */
kvr_cell_t *kvr_stats_row(struct kvr_stats *stats, unsigned int writer);

/** Sum all rows into @p out (kvr_stats_count() values). Any thread. */
void kvr_stats_sum(const struct kvr_stats *stats, uint64_t out[]);

/**
 * Copy the row of one writer into @p out (kvr_stats_count() values); consistent if the owner calls.
 */
void kvr_stats_row_get(const struct kvr_stats *stats, unsigned int writer, uint64_t out[]);

/** Add @p n to counter @p i of a row. Owner of the row only. */
static inline void kvr_stats_add(kvr_cell_t *row, unsigned int i, uint64_t n)
{
	/* Relaxed: the counter publishes nothing; readers only need an untorn value. */
	uint64_t v = atomic_load_explicit(&row[i], memory_order_relaxed);

	atomic_store_explicit(&row[i], v + n, memory_order_relaxed);
}

static inline void kvr_stats_inc(kvr_cell_t *row, unsigned int i)
{
	kvr_stats_add(row, i, 1);
}

/** Subtract @p n from a gauge. The sum over rows is right even if one row wraps below zero. */
static inline void kvr_stats_sub(kvr_cell_t *row, unsigned int i, uint64_t n)
{
	kvr_stats_add(row, i, 0 - n);
}

/** Set a gauge of a row. Owner of the row only. */
static inline void kvr_stats_set(kvr_cell_t *row, unsigned int i, uint64_t v)
{
	atomic_store_explicit(&row[i], v, memory_order_relaxed); /* publishes nothing */
}

/** Value of one counter of one row. Any thread. */
static inline uint64_t kvr_stats_get(const kvr_cell_t *row, unsigned int i)
{
	return atomic_load_explicit(&row[i], memory_order_relaxed);
}

/** Add @p n to one counter, wherever it is stored. Its writer only. */
static inline void kvr_cell_add(kvr_cell_t *cell, uint64_t n)
{
	kvr_stats_add(cell, 0, n);
}

/** Subtract @p n from a gauge. Its writer only. */
static inline void kvr_cell_sub(kvr_cell_t *cell, uint64_t n)
{
	kvr_stats_add(cell, 0, 0 - n);
}

/** Set a gauge. Its writer only. */
static inline void kvr_cell_set(kvr_cell_t *cell, uint64_t v)
{
	kvr_stats_set(cell, 0, v);
}

/** Value of one counter. Any thread. */
static inline uint64_t kvr_cell_get(const kvr_cell_t *cell)
{
	return kvr_stats_get(cell, 0);
}

/** Copy @p n cells of a row to another one. Any thread that is the only writer of @p to. */
static inline void kvr_stats_row_copy(kvr_cell_t *to, const kvr_cell_t *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		kvr_stats_set(to, i, kvr_stats_get(from, i));
}

/**
 * Write the text of an equation, "rx = good + waiting", into @p buf, truncated to @p len bytes.
 * @return buf.
 */
char *kvr_equation_text(const struct kvr_stats_def *def, const struct kvr_equation *equation,
			char *buf, size_t len);

/**
 * Check the equations of @p def against a set of values.
 * @return NULL if all hold, otherwise the first violated one. @p err (may be NULL) then gets its
 *   text with the values: "port: rx = good + bad, but 5 != 4".
 */
const struct kvr_equation *kvr_stats_check(const struct kvr_stats_def *def, const uint64_t v[],
					   char *err, size_t errlen);

/** Value of the counter named @p name; 0 if there is none. For tests and tools. */
uint64_t kvr_stats_find(const struct kvr_stats_def *def, const uint64_t v[], const char *name);

struct rte_tel_data;

/**
 * Add every counter to a started telemetry dictionary as `name: value`. Links with
 * librte_telemetry.
 * @return 0 or the first negative error of rte_tel_data_add_dict_u64().
 */
int kvr_stats_tel(const struct kvr_stats_def *def, const uint64_t v[], struct rte_tel_data *dict);

#endif
