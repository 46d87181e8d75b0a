/* SPDX-License-Identifier: Apache-2.0 */
/* Laying items out in packs: entries of the safetensors header, pads, pieces and the chunks that carry them.
 * doc/format/pack.md.
 *
 * Offsets count from the end of the header while a pack is being filled, because the header's length is known only
 * when it is full; closing the pack moves them. Every byte of the data belongs to one entry: where the next item has
 * to begin on BWI_PACK_ALIGN, a pad fills the gap. A pad belongs to the chunk before it, so chunks follow each other
 * without a hole. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/plan_private.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define METADATA    "{\"breakwater\":\"1.0\"}"
#define HEADER_BASE 256 /* more than what a header has beside its entries: its length, braces, metadata */
#define HEADER_FULL (BWI_PACK_HEADER_MAX - BWI_PACK_ALIGN - HEADER_BASE)
/* Most bytes of one item in one pack: room is left for the header, and it is a multiple of every extent size. */
#define PART_MAX   (BWI_PACK_BYTES_MAX - 2 * BWI_PACK_HEADER_MAX)
#define NAME_BYTES 16 /* "bw:" and ten digits */
#define NO_CHUNK   UINT64_MAX

/* What is put into a pack at once: an item, or, where it is too large for one pack, a part of it. */
struct part {
    uint32_t item;
    uint64_t from, bytes;
    bool whole;
    bool large; /* begins on BWI_PACK_ALIGN; each of its extents is a chunk of its own */
};

struct packer {
    struct bwi_plan *plan;
    uint64_t file_max;
    struct bwi_pack_header head; /* of the pack that is being filled; a name without address is given on closing */
    size_t json;                 /* upper bound of what its entries take */
    uint64_t at;                 /* bytes of data so far */
    uint64_t open_chunk;         /* where the chunk begins that takes further small items, or NO_CHUNK */
    size_t first_chunk, first_piece;
    size_t chunk_cap, pack_cap;
};

/* ---- order ---- */

enum turn { TURN_BIG = 0, TURN_SMALL = 1, TURN_BLOB = 2 };

struct ticket {
    enum turn turn;
    size_t elem_bytes; /* of small boxes: the larger come first, so that each lies on a multiple of its own size */
    uint32_t item;
};

static int by_turn(const void *left, const void *right) {
    const struct ticket *a = left;
    const struct ticket *b = right;
    if (a->turn != b->turn) return a->turn < b->turn ? -1 : 1;
    if (a->turn == TURN_SMALL && a->elem_bytes != b->elem_bytes) return a->elem_bytes > b->elem_bytes ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

static struct ticket ticket_of(const struct bwi_plan *p, uint32_t item) {
    const struct bwi_tensor_source *s = p->items[item].tensor;
    if (s == NULL) return (struct ticket){TURN_BLOB, 1, item};
    return (struct ticket){s->bytes >= BWI_PACK_BIG_BYTES ? TURN_BIG : TURN_SMALL, bw_dtype_bytes(s->dtype), item};
}

/* ---- entries ---- */

static bool has_own_name(const struct bwi_plan *p, const struct part *part) {
    const struct bwi_tensor_source *s = p->items[part->item].tensor;
    if (s == NULL || !part->whole || !bwi_pack_dtype(s->dtype)) return false;
    return strcmp(s->name, "__metadata__") != 0 && strncmp(s->name, "bw:", 3) != 0;
}

static struct bwi_pack_entry bytes_entry(uint64_t begin, uint64_t bytes) {
    return (struct bwi_pack_entry){.dtype = BW_U8, .dims = 1, .shape = {bytes}, .begin = begin, .end = begin + bytes};
}

static struct bwi_pack_entry part_entry(const struct bwi_plan *p, const struct part *part, uint64_t begin) {
    struct bwi_pack_entry e = bytes_entry(begin, part->bytes);
    if (!has_own_name(p, part)) return e;
    const struct bwi_tensor_source *s = p->items[part->item].tensor;
    e.name = bwi_span_str(s->name);
    e.dtype = s->dtype;
    e.dims = s->dims;
    memset(e.shape, 0, sizeof e.shape);
    memcpy(e.shape, s->extent, s->dims * sizeof *e.shape);
    return e;
}

static size_t json_of(struct bwi_pack_entry e) {
    if (e.name.ptr == NULL) e.name = bwi_span_str("bw:4294967295");
    return bwi_pack_entry_json_bytes(&e);
}

static int put_entry(struct packer *k, const struct bwi_pack_entry *e, struct bw_error *err) {
    struct bwi_pack_header *h = &k->head;
    if (!bwi_vec_reserve((void **)&h->entries, &h->cap, h->count + 1, sizeof *h->entries)) {
        return bwi_error_nomem(err, (h->count + 1) * sizeof *h->entries, "entries of a pack");
    }
    h->entries[h->count++] = *e;
    k->json += json_of(*e);
    k->at = e->end;
    return 0;
}

/* Names for all entries that have none: bw:0, bw:1, ... */
static int name_entries(struct bwi_pack_header *h, struct bw_error *err) {
    size_t unnamed = 0;
    for (size_t i = 0; i < h->count; i++) unnamed += h->entries[i].name.ptr == NULL;
    /* All at once: the names lie in this buffer, which must not move. */
    if (!bwi_buf_reserve(&h->names, unnamed * NAME_BYTES)) {
        return bwi_error_nomem(err, unnamed * NAME_BYTES, "names in a pack");
    }
    uint32_t n = 0;
    for (size_t i = 0; i < h->count; i++) {
        if (h->entries[i].name.ptr != NULL) continue;
        char name[NAME_BYTES];
        (void)bwi_format(name, sizeof name, "bw:%" PRIu32, n++);
        const size_t len = strlen(name);
        bwi_buf_put(&h->names, name, len);
        h->entries[i].name = bwi_span(h->names.ptr + h->names.len - len, len);
    }
    return 0;
}

/* ---- packs ---- */

/* Moves what was counted from the end of the header to its place in the file. */
static void move_behind_header(struct packer *k, uint64_t header_bytes) {
    struct bwi_plan *p = k->plan;
    for (size_t i = k->first_chunk; i < p->chunk_count; i++) p->chunks[i].pack_offset += header_bytes;
    for (size_t i = k->first_piece; i < p->piece_count; i++) {
        p->pieces[i].pack_offset += header_bytes;
        p->places[p->pieces[i].extent].offset += header_bytes;
    }
}

static int push_pack(struct packer *k, struct bw_error *err) {
    struct bwi_plan *p = k->plan;
    if (p->pack_count >= BWI_PACKS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "plan: more than %" PRIu32 " packs, the limit", BWI_PACKS_MAX);
    }
    if (!bwi_vec_reserve((void **)&p->packs, &k->pack_cap, p->pack_count + 1, sizeof *p->packs)) {
        return bwi_error_nomem(err, sizeof *p->packs, "plan of a pack");
    }
    int rc = name_entries(&k->head, err);
    if (rc < 0) return rc;
    k->head.data_bytes = k->at;
    k->head.metadata = bwi_span_str(METADATA);
    struct bwi_pack_plan *pack = &p->packs[p->pack_count];
    *pack = (struct bwi_pack_plan){.first_chunk = k->first_chunk, .chunks = p->chunk_count - k->first_chunk};
    rc = bwi_pack_header_encode(&k->head, BWI_PACK_ALIGN, &pack->header, err);
    if (rc < 0) {
        bwi_buf_fini(&pack->header);
        return rc;
    }
    move_behind_header(k, pack->header.len);
    pack->file_bytes = pack->header.len + k->at;
    p->stored_bytes += pack->file_bytes;
    p->pack_count++;
    return 0;
}

/* Ends the pack that is being filled. One without a byte is not made: its entries are of empty tensors, and the layout
 * has those. */
static int close_pack(struct packer *k, struct bw_error *err) {
    const int rc = k->at > 0 ? push_pack(k, err) : 0;
    if (rc < 0) return rc;
    k->head.count = 0;
    bwi_buf_reset(&k->head.names);
    k->json = 0;
    k->at = 0;
    k->open_chunk = NO_CHUNK;
    k->first_chunk = k->plan->chunk_count;
    k->first_piece = k->plan->piece_count;
    return 0;
}

/* ---- chunks and pieces ---- */

static int put_chunk(struct packer *k, uint64_t at, struct bw_error *err) {
    struct bwi_plan *p = k->plan;
    if (!bwi_vec_reserve((void **)&p->chunks, &k->chunk_cap, p->chunk_count + 1, sizeof *p->chunks)) {
        return bwi_error_nomem(err, (p->chunk_count + 1) * sizeof *p->chunks, "chunks of a plan");
    }
    p->chunks[p->chunk_count++] = (struct bwi_chunk){.pack_offset = at, .first_piece = p->piece_count};
    return 0;
}

/* Into the last chunk. There is room: the arrays have an element per extent. */
static void put_piece(struct packer *k, uint32_t item, uint64_t item_offset, uint32_t bytes, uint64_t at) {
    struct bwi_plan *p = k->plan;
    struct bwi_chunk *c = &p->chunks[p->chunk_count - 1];
    const uint64_t extent = p->content.first_extent[item] + item_offset / p->content.extent_bytes;
    p->pieces[p->piece_count++] = (struct bwi_piece){item, extent, item_offset, bytes, at};
    p->places[extent] = (struct bwi_place){
        .pack = (uint32_t)p->pack_count, .codec = BWI_CODEC_RAW, .offset = at, .stored_bytes = bytes};
    c->pieces++;
    c->bytes += bytes;
}

static int put_large(struct packer *k, const struct part *part, uint64_t start, struct bw_error *err) {
    const uint32_t most = k->plan->content.extent_bytes;
    for (uint64_t done = 0; done < part->bytes; done += most) {
        const int rc = put_chunk(k, start + done, err);
        if (rc < 0) return rc;
        const uint32_t bytes = (uint32_t)bwi_min_u64(most, part->bytes - done);
        put_piece(k, part->item, part->from + done, bytes, start + done);
    }
    k->open_chunk = NO_CHUNK;
    return 0;
}

static bool joins_chunk(const struct packer *k, const struct part *part) {
    return !part->large && k->open_chunk != NO_CHUNK &&
           k->at - k->open_chunk + part->bytes <= k->plan->content.extent_bytes;
}

static int put_small(struct packer *k, const struct part *part, uint64_t start, bool joins, struct bw_error *err) {
    if (!joins) {
        const int rc = put_chunk(k, start, err);
        if (rc < 0) return rc;
        k->open_chunk = start;
    }
    put_piece(k, part->item, part->from, (uint32_t)part->bytes, start);
    return 0;
}

static int put_pad(struct packer *k, uint64_t start, struct bw_error *err) {
    if (start == k->at) return 0;
    const struct bwi_pack_entry e = bytes_entry(k->at, start - k->at);
    k->plan->chunks[k->plan->chunk_count - 1].bytes += (uint32_t)(start - k->at);
    return put_entry(k, &e, err);
}

/* ---- parts ---- */

static uint64_t start_of(const struct packer *k, const struct part *part) {
    if (part->bytes == 0 || joins_chunk(k, part)) return k->at;
    return bwi_round_up(k->at, BWI_PACK_ALIGN);
}

/* Does the pack have to be closed before this part? Not for its size if that would not make it smaller. */
static bool is_full(const struct packer *k, const struct part *part) {
    const uint64_t start = start_of(k, part);
    uint64_t json = k->json + json_of(part_entry(k->plan, part, start));
    if (start > k->at) json += json_of(bytes_entry(k->at, start - k->at));
    if (json > HEADER_FULL) return k->head.count > 0;
    const uint64_t header = bwi_round_up(HEADER_BASE + json, BWI_PACK_ALIGN);
    return k->at > 0 && header + start + part->bytes > k->file_max;
}

static int put_part(struct packer *k, const struct part *part, struct bw_error *err) {
    int rc = is_full(k, part) ? close_pack(k, err) : 0;
    if (rc < 0) return rc;
    const uint64_t start = start_of(k, part);
    const bool joins = joins_chunk(k, part);
    rc = put_pad(k, start, err);
    if (rc < 0) return rc;
    if (part->large) {
        rc = put_large(k, part, start, err);
    } else if (part->bytes > 0) {
        rc = put_small(k, part, start, joins, err);
    }
    if (rc < 0) return rc;
    const struct bwi_pack_entry e = part_entry(k->plan, part, start);
    return put_entry(k, &e, err);
}

static int put_item(struct packer *k, uint32_t item, struct bw_error *err) {
    const uint64_t bytes = k->plan->content.raw_bytes[item];
    const bool large = bytes >= BWI_PACK_BIG_BYTES || bytes > k->plan->content.extent_bytes;
    uint64_t from = 0;
    do {
        const uint64_t n = bwi_min_u64(bytes - from, PART_MAX);
        const struct part part = {item, from, n, n == bytes, large};
        const int rc = put_part(k, &part, err);
        if (rc < 0) return rc;
        from += n;
    } while (from < bytes);
    return 0;
}

static int make_places(struct bwi_plan *p, struct bw_error *err) {
    size_t n;
    if (!bwi_u64_to_size(p->content.extent_count, &n)) {
        return bwi_error_set(err, BW_E_LIMIT, "plan: %" PRIu64 " extents do not fit memory", p->content.extent_count);
    }
    p->places = bwi_calloc(n, sizeof *p->places);
    p->pieces = bwi_calloc(n, sizeof *p->pieces);
    if (p->places != NULL && p->pieces != NULL) return 0;
    return bwi_error_nomem(err, n * (sizeof *p->places + sizeof *p->pieces), "places of a plan");
}

int bwi_plan_pack(struct bwi_plan *p, uint64_t pack_bytes, struct bw_error *err) {
    struct packer k = {.plan = p, .file_max = bwi_min_u64(pack_bytes, BWI_PACK_BYTES_MAX), .open_chunk = NO_CHUNK};
    const uint32_t items = p->content.item_count;
    struct ticket *line = bwi_calloc(items, sizeof *line);
    size_t n = 0;
    int rc = line != NULL ? make_places(p, err) : bwi_error_nomem(err, items * sizeof *line, "order of a plan");
    if (rc < 0 || line == NULL) goto out;
    for (uint32_t i = 0; i < items; i++) {
        const bool tied = i < p->layout.box_count && p->layout.boxes[i].tied != BWI_NOT_TIED;
        if (!tied) line[n++] = ticket_of(p, i);
    }
    qsort(line, n, sizeof *line, by_turn);
    for (size_t i = 0; i < n && rc == 0; i++) rc = put_item(&k, line[i].item, err);
    if (rc == 0) rc = close_pack(&k, err);
out:
    bwi_free(line);
    bwi_pack_header_fini(&k.head);
    return rc;
}
