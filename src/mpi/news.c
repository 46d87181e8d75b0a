/* SPDX-License-Identifier: Apache-2.0 */
/* News: hints that it is time to look. doc/flows/mpi.md.
 *
 * All go to rank 0 or come from there, so no rank's news hang on a third one's being in here. What is sent is small
 * enough for MPI to take it over at once; what it does not take waits in a list and holds nothing up. */
#include "mpi/ranks.h"

#include <stdlib.h>
#include <string.h>

#define NEWS_TAG 1
/* Of ten thousand ranks that hear of a commit each looks at its own moment within two seconds. */
#define LOOK_SPREAD_S 0.0002

/* --- sending --------------------------------------------------------------------------------------------------- */

static void send_to(struct bw_mpi *m, const struct bwi_mpi_news *news, int first, int count) {
    struct bwi_mpi_sending *s = calloc(1, sizeof *s + (size_t)count * sizeof(MPI_Request));
    if (!s) return; /* it is a hint */
    s->news = *news;
    for (int i = 0; i < count; i++) {
        MPI_Request *r = &s->requests[s->count];
        if (MPI_Isend(&s->news, (int)sizeof s->news, MPI_BYTE, first + i, NEWS_TAG, m->comm, r) == MPI_SUCCESS)
            s->count++;
    }
    s->next = m->sending;
    m->sending = s;
}

static void send_up(struct bw_mpi *m, const struct bwi_mpi_news *news) {
    send_to(m, news, 0, 1);
}

static void send_down(struct bw_mpi *m, const struct bwi_mpi_news *news) {
    if (m->world > 1) send_to(m, news, 1, (int)m->world - 1);
}

static void free_sent(struct bw_mpi *m) {
    for (struct bwi_mpi_sending **at = &m->sending; *at;) {
        struct bwi_mpi_sending *s = *at;
        int done = 0;
        if (MPI_Testall(s->count, s->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS || !done) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free(s);
    }
}

/* --- what happened --------------------------------------------------------------------------------------------- */

static struct bwi_mpi_step *step_of(struct bw_mpi *m, uint64_t step) {
    for (size_t i = 0; i < BWI_MPI_STEPS_MAX; i++)
        if (m->steps[i].step == step && (m->steps[i].arrived || m->steps[i].in_flight || m->steps[i].failed))
            return &m->steps[i];
    struct bwi_mpi_step *s = &m->steps[m->next_step];
    m->next_step = (m->next_step + 1) % BWI_MPI_STEPS_MAX;
    *s = (struct bwi_mpi_step){.step = step};
    return s;
}

static void queue_event(struct bw_mpi *m, const struct bw_event *e, uint32_t rank) {
    struct bw_mpi_event *slot = &m->events[(m->event_at + m->event_count) % BWI_MPI_EVENTS_MAX];
    if (m->event_count == BWI_MPI_EVENTS_MAX) {
        m->event_at = (m->event_at + 1) % BWI_MPI_EVENTS_MAX;
        m->event_lost++;
    } else {
        m->event_count++;
    }
    *slot = (struct bw_mpi_event){.event = *e, .rank = rank};
}

static void look_now(struct bw_mpi *m) {
    if (m->ck) bw_checkpointer_look(m->ck);
}

static void look_soon(struct bw_mpi *m) {
    if (m->look_at <= 0) m->look_at = MPI_Wtime() + LOOK_SPREAD_S * (double)m->rank;
}

/* Rank 0: a rank's data of a step is in the authority. Who looks before the last one has come looks in vain. */
static void count_arrived(struct bw_mpi *m, uint64_t step) {
    struct bwi_mpi_step *s = step_of(m, step);
    s->arrived++;
    if (s->arrived % m->world == 0) look_now(m);
}

/* Rank 0: a failure, its own or another rank's. One of a step is enough: what ends a save ends it for all. */
static void pass_failure_on(struct bw_mpi *m, const struct bwi_mpi_news *news) {
    const bool attempt = news->event.type == BW_EVENT_ATTEMPT;
    bool *said = attempt ? &m->attempt_failed : &step_of(m, news->event.step)->failed;
    look_now(m);
    if (*said) return;
    *said = true;
    send_down(m, news);
}

static void tell_failure(struct bw_mpi *m, const struct bw_event *e) {
    const struct bwi_mpi_news news = {.kind = BWI_MPI_FAILED, .rank = m->rank, .event = *e};
    if (m->rank == 0)
        pass_failure_on(m, &news);
    else
        send_up(m, &news);
}

/* An abort or the end of the attempt was read from the history, where all others read it as well. */
static bool is_own(int status) {
    return status < 0 && status != BW_E_ABORTED && status != BW_E_SUPERSEDED && status != BW_E_LAUNCH_LOST;
}

static void tell_end(struct bw_mpi *m, const struct bw_event *e) {
    step_of(m, e->step)->in_flight = false;
    if (is_own(e->status)) tell_failure(m, e);
    if (e->status < 0 || m->rank != 0) return;
    const struct bwi_mpi_news news = {.kind = BWI_MPI_COMMITTED, .event = *e};
    send_down(m, &news);
}

static void tell_level(struct bw_mpi *m, const struct bw_event *e) {
    const struct bwi_mpi_news news = {.kind = BWI_MPI_ARRIVED, .rank = m->rank, .event = *e};
    if (e->level == BW_CAPTURED) step_of(m, e->step)->in_flight = true;
    if (e->level != BW_REMOTE) return;
    if (m->rank == 0)
        count_arrived(m, e->step);
    else
        send_up(m, &news);
}

static void take_own(struct bw_mpi *m) {
    struct bw_event e;
    while (m->ck && bw_checkpointer_poll(m->ck, &e)) {
        if (e.type == BW_EVENT_LEVEL) tell_level(m, &e);
        if (e.type == BW_EVENT_SAVE_ENDED) tell_end(m, &e);
        if (e.type == BW_EVENT_ATTEMPT && !m->attempt_failed) tell_failure(m, &e);
        queue_event(m, &e, m->rank);
    }
}

/* --- receiving ------------------------------------------------------------------------------------------------- */

static void heard(struct bw_mpi *m, const struct bwi_mpi_news *news) {
    switch (news->kind) {
    case BWI_MPI_ARRIVED: count_arrived(m, news->event.step); break;
    case BWI_MPI_COMMITTED: look_soon(m); break;
    case BWI_MPI_LAST: m->last_heard++; break;
    case BWI_MPI_FAILED:
        if (news->rank == m->rank) break; /* its own, passed on */
        queue_event(m, &news->event, news->rank);
        if (m->rank == 0)
            pass_failure_on(m, news);
        else
            look_soon(m);
        break;
    default: break;
    }
}

static int receive_next(struct bw_mpi *m) {
    const int from = m->rank == 0 ? MPI_ANY_SOURCE : 0;
    return MPI_Irecv(&m->received, (int)sizeof m->received, MPI_BYTE, from, NEWS_TAG, m->comm, &m->receiving);
}

static void take_theirs(struct bw_mpi *m) {
    int done = 1;
    while (m->receiving != MPI_REQUEST_NULL && done) {
        if (MPI_Test(&m->receiving, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
        if (!done) return;
        const struct bwi_mpi_news news = m->received;
        heard(m, &news);
        if (m->rank != 0 && m->last_heard) return; /* nothing comes any more */
        if (receive_next(m) != MPI_SUCCESS) m->receiving = MPI_REQUEST_NULL;
    }
}

int bwi_mpi_news_start(struct bw_mpi *m, struct bw_error *err) {
    return m->world == 1 ? 0 : bwi_mpi_check(receive_next(m), "receive news", err);
}

void bwi_mpi_news_move(struct bw_mpi *m) {
    take_own(m);
    take_theirs(m);
    free_sent(m);
    if (m->look_at <= 0 || MPI_Wtime() < m->look_at) return;
    m->look_at = 0;
    look_now(m);
}

bool bwi_mpi_news_in_flight(const struct bw_mpi *m) {
    for (size_t i = 0; i < BWI_MPI_STEPS_MAX; i++)
        if (m->steps[i].in_flight) return true;
    return false;
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

static void cancel_receive(struct bw_mpi *m) {
    if (m->receiving == MPI_REQUEST_NULL) return;
    if (MPI_Cancel(&m->receiving) != MPI_SUCCESS || MPI_Wait(&m->receiving, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        m->abandoned = true;
}

/* Messages of one rank arrive in order, so behind its last one nothing of it is under way. Rank 0 hears all before it
 * says its own last word, and thus relays what comes until then. */
int bwi_mpi_news_end(struct bw_mpi *m, double until) {
    const struct bwi_mpi_news last = {.kind = BWI_MPI_LAST, .rank = m->rank};
    const uint32_t others = m->rank == 0 ? m->world - 1 : 1;
    if (m->world == 1) return 0;
    if (m->rank != 0) send_up(m, &last);
    bool said = m->rank != 0;
    for (unsigned looks = 0; m->last_heard < others || !said || m->sending; looks++) {
        if (MPI_Wtime() > until) {
            m->abandoned = true;
            return BW_E_TIMEOUT;
        }
        bwi_mpi_news_move(m);
        if (!said && m->last_heard == others) {
            said = true;
            send_down(m, &last);
        }
        bwi_mpi_pause(looks);
    }
    cancel_receive(m);
    return 0;
}
