/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_FOLD_PVT_H
#define KVR_ENGINE_FOLD_PVT_H

/**
 * @file
 * The merged values of a stream: a tree of nodes. fold.c merges events into it, fold_answer.c
 * writes the answer from it.
 */

#include "buffer_pvt.h"
#include "kvr_engine_fold.h"
#include "kvr_json.h"

enum fold_shape {
	FOLD_NULL,
	FOLD_RAW,     /**< `text` is a JSON value, which the next one replaces */
	FOLD_STRING,  /**< `text` is the content of a string, which grows */
	FOLD_ARRAY,   /**< `text` is the elements of an array, which grows */
	FOLD_OBJECT,  /**< its children are the members */
	FOLD_INDEXED, /**< its children are objects, sorted by `index` */
};

struct fold_node {
	struct fold_node *next, *child;
	enum fold_shape shape;
	uint32_t n_children;
	uint64_t index;
	struct kvr_engine_buffer name; /**< without quotes; empty for elements */
	struct kvr_engine_buffer text;
};

struct kvr_engine_fold {
	struct kvr_engine_fold_conf conf;
	struct fold_node root;		 /**< the members of all chunks */
	struct kvr_engine_buffer answer; /**< of the responses API, or an error */
	size_t bytes;			 /**< of all texts */
	uint32_t n_nodes;
	uint32_t events;
	uint16_t status; /**< of an error; 0: none */
	bool done;	 /**< "[DONE]", or an event that ends the stream, has come */
	int err;	 /**< of kvr_engine_fold_add() */
};

/** Child called @p name; NULL: none. */
static inline struct fold_node *kvr_engine__find_child(const struct fold_node *parent,
						       const char *name, size_t len)
{
	struct fold_node *child = parent->child;

	while (child != NULL && (child->name.len != len || memcmp(child->name.p, name, len) != 0))
		child = child->next;
	return child;
}

/** Write the answer from the tree. @return false: no memory. */
bool kvr_engine__write_answer(const struct kvr_engine_fold *fold, struct kvr_engine_buffer *out);

#endif
