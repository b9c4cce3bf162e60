#!/usr/bin/python3
"""A stand-in for attnd over the float64 reference: in process for tests of the client, or run
as a program with attnd's own flags and ready line.

`faults` lets a test lose answers: each entry is applied to one unary step after it was carried
out ("lost") or before ("unseen").
"""

import argparse
import queue
import secrets
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

if __name__ == "__main__":
    HERE = Path(__file__).resolve()
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "client" / "python")]

from attnd import _wire, tensors  # noqa: E402
from attnd._proto import attnd_pb2 as pb  # noqa: E402
from attnd._proto import attnd_pb2_grpc as rpc  # noqa: E402
from support import reference, safetensors  # noqa: E402
from support.fake_engine import Code, Engine, Refusal, to_array  # noqa: E402
from support.fake_transfers import Transfers, refuse, session_message  # noqa: E402

ATTENTION = "attnd.v1.AttentionService"


class FakeServer(
    Transfers,
    rpc.AttentionServiceServicer,
    rpc.SessionServiceServicer,
    rpc.ModelServiceServicer,
    rpc.AdminServiceServicer,
):
    """Listens on a free port at construction; `address` is "127.0.0.1:PORT"."""

    def __init__(self, model, weights, listen="127.0.0.1:0", rows_a_response=0):
        super().__init__()
        self.engine = Engine(reference.read_config(model), safetensors.read(weights))
        self.rows_a_response = rows_a_response  # > 0: Steps answers in parts of so many rows
        self.faults, self.metadata, self.requests, self.contexts = [], [], [], []
        self.draining = False
        self.server_id = f"fake-{secrets.token_hex(4)}"
        self.server = grpc.server(
            futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 256 << 20)]
        )
        for name in ("Attention", "Session", "Model", "Admin"):
            getattr(rpc, f"add_{name}ServiceServicer_to_server")(self, self.server)
        self.server.add_generic_rpc_handlers([self._health_handler()])
        self.address = f"127.0.0.1:{self.server.add_insecure_port(listen)}"
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()

    def _health_handler(self):
        def check(service, context):
            if service not in ("", ATTENTION):
                context.abort(Code.NOT_FOUND, f"unknown service {service}")
            return b"\x08\x02" if self.draining else b"\x08\x01"

        handler = grpc.unary_unary_rpc_method_handler(
            check, lambda data: dict(_wire.fields(data)).get(1, b"").decode(), lambda data: data
        )
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})

    # ------------------------------------------------------------ unary

    def _answer(self, context, act, *arguments):
        self.metadata.append(dict(context.invocation_metadata()))
        context.send_initial_metadata([("attnd-server", self.server_id)])
        try:
            with self.engine.lock:
                return act(*arguments)
        except Refusal as refusal:
            refuse(context, refusal)

    def _faulty(self, context, act, request):
        self.requests.append(request)
        self.contexts.append(context)
        fault = self.faults.pop(0) if self.faults else None
        if fault == "unseen":
            context.abort(Code.UNAVAILABLE, "the request was lost")
        answer = self._answer(context, act, request, lambda: self._check_alive(context))
        if fault == "lost":
            context.abort(Code.UNAVAILABLE, "the answer was lost")
        return answer

    @staticmethod
    def _check_alive(context):
        if not context.is_active():
            raise Refusal(Code.CANCELLED, "", "cancelled or past its deadline")

    def Prefill(self, request, context):
        return self._faulty(context, self._prefill, request)

    def Decode(self, request, context):
        return self._faulty(context, self._decode, request)

    def CreateSession(self, request, context):
        return self._answer(context, lambda: session_message(self.engine.create(request)))

    def GetSession(self, request, context):
        return self._answer(
            context, lambda: session_message(self.engine.get(request.session_id))
        )

    def RewindSession(self, request, context):
        return self._answer(
            context,
            lambda: session_message(self.engine.rewind(request.session_id, request.position)),
        )

    def CloseSession(self, request, context):
        self._answer(context, self.engine.close, request.session_id)
        return pb.CloseSessionResponse(freed_bytes=1)

    def ListSessions(self, request, context):
        every = sorted(self.engine.sessions)
        start = every.index(request.page_token) if request.page_token else 0
        end = start + (request.page_size or 100)
        page = [session_message(self.engine.sessions[name]) for name in every[start:end]]
        token = every[end] if end < len(every) else ""
        return pb.ListSessionsResponse(sessions=page, next_page_token=token)

    def GetModel(self, request, context):
        config = self.engine.config
        kinds = [
            pb.LAYER_KIND_GLOBAL_MLA if reference.is_global(config, i) else pb.LAYER_KIND_LOCAL_GQA
            for i in range(config["n_layers"])
        ]
        return pb.ModelInfo(
            name="fake",
            device="cpu:reference",
            d_model=config["d_model"],
            num_heads_q=config["n_heads_q"],
            num_heads_kv=config["n_heads_kv"],
            local_window=config["local_window"],
            max_seq_len=config["max_seq_len"],
            layers=kinds,
            weight_dtype=pb.DTYPE_F32,
            cache_dtype=pb.DTYPE_F32,
            max_rewind=64,
            page_tokens=64,
            hidden_dtypes=[pb.DTYPE_F32, pb.DTYPE_BF16, pb.DTYPE_F16],
        )

    def GetStats(self, request, context):
        return pb.Stats(
            server_id=self.server_id, sessions=len(self.engine.sessions), draining=self.draining
        )

    def Drain(self, request, context):
        self.draining = True
        return pb.DrainResponse(sessions=len(self.engine.sessions))

    # ------------------------------------------------------------ steps

    def _output(self, rows, requested, sent):
        short = tensors.name_of_wire(requested or sent)
        return tensors.to_tensor(rows.astype("f4"), short)

    def _prefill(self, request, may_commit):
        self.engine.check_layer(request.layer)
        x = to_array(request.hidden, self.engine.config["d_model"])
        start, rows, length = self.engine.append(
            request.session_id, request.layer, request, x, False, may_commit
        )
        keep = {pb.OUTPUT_ROWS_LAST: 1, pb.OUTPUT_ROWS_NONE: 0}.get(request.output_rows, len(rows))
        start, rows = start + len(rows) - min(keep, len(rows)), rows[len(rows) - keep :]
        return pb.PrefillResponse(
            output_position=start if len(rows) else request.position,
            length=length,
            output=self._output(rows, request.output_dtype, request.hidden.dtype),
        )

    def _decode(self, request, may_commit):
        self.engine.check_layer(request.layer)
        x = to_array(request.hidden, self.engine.config["d_model"])
        ids = [step.session_id for step in request.sequences]
        counts = [step.num_tokens or 1 for step in request.sequences]
        if not ids or len(set(ids)) < len(ids) or sum(counts) != len(x):
            raise Refusal(Code.INVALID_ARGUMENT, "BAD_BATCH", "sequences do not fit hidden")
        output, results, refusals, row = x * 0, [], [], 0
        for step, count in zip(request.sequences, counts):
            try:
                rows = slice(row, row + count)
                _, output[rows], length = self.engine.append(
                    step.session_id, request.layer, step, x[rows], True, may_commit
                )
                results.append(pb.SequenceResult(length=length))
            except Refusal as refusal:
                refusals.append(refusal)
                length = self.engine.length(step.session_id, request.layer)
                status = pb.Status(
                    code=refusal.code.value[0], message=str(refusal), reason=refusal.reason
                )
                results.append(pb.SequenceResult(status=status, length=length))
            row += count
        if len(refusals) == len(ids) and len({refusal.reason for refusal in refusals}) == 1:
            raise refusals[0]
        return pb.DecodeResponse(
            results=results,
            output=self._output(output, request.output_dtype, request.hidden.dtype),
        )

    def Steps(self, requests, context):
        self.metadata.append(dict(context.invocation_metadata()))
        waiting, cancelled = queue.Queue(), set()

        def read():
            try:
                for request in requests:
                    if request.WhichOneof("step") == "cancel_step_id":
                        cancelled.add(request.cancel_step_id)
                    else:
                        seconds = request.timeout.ToNanoseconds() / 1e9
                        limit = time.monotonic() + seconds if request.HasField("timeout") else None
                        waiting.put((request, limit))
            except grpc.RpcError:
                pass
            waiting.put(None)

        threading.Thread(target=read, daemon=True).start()
        for request, limit in iter(waiting.get, None):
            yield from self._step(request, limit, cancelled)

    def _step(self, request, limit, cancelled):
        def check():
            if request.step_id in cancelled:
                raise Refusal(Code.CANCELLED, "STEP_CANCELLED", "the step was cancelled")
            if limit is not None and time.monotonic() > limit:
                raise Refusal(Code.DEADLINE_EXCEEDED, "STEP_TIMEOUT", "the step's time is over")

        try:
            check()
            with self.engine.lock:
                if request.WhichOneof("step") == "prefill":
                    answer = self._prefill(request.prefill, check)
                    yield from self._step_parts(request.step_id, answer)
                elif request.WhichOneof("step") == "decode":
                    answer = self._decode(request.decode, check)
                    yield pb.StepResponse(step_id=request.step_id, decode=answer)
                else:
                    raise Refusal(Code.INVALID_ARGUMENT, "BAD_ARGUMENT", "the step has no kind")
        except Refusal as refusal:
            status = pb.Status(
                code=refusal.code.value[0], message=str(refusal), reason=refusal.reason
            )
            yield pb.StepResponse(step_id=request.step_id, status=status)

    def _step_parts(self, step_id, answer):
        size = self.rows_a_response
        if not size:
            yield pb.StepResponse(step_id=step_id, prefill=answer)
            return
        short = tensors.name_of_wire(answer.output.dtype)
        rows = tensors.from_tensor(answer.output)
        while len(rows) > size:
            part = pb.PrefillResponse()
            part.CopyFrom(answer)
            part.output.CopyFrom(tensors.to_tensor(rows[:size], short))
            yield pb.StepResponse(step_id=step_id, prefill=part, more=True)
            rows, answer.output_position = rows[size:], answer.output_position + size
        answer.output.CopyFrom(tensors.to_tensor(rows, short))
        yield pb.StepResponse(step_id=step_id, prefill=answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--http", default="127.0.0.1:0")
    arguments, _ = parser.parse_known_args()
    fake = FakeServer(arguments.model, arguments.weights, arguments.listen)
    name = arguments.model.parent.name
    print(f"attnd ready grpc={fake.address} http= model={name} device=cpu:reference", flush=True)
    fake.server.wait_for_termination()


if __name__ == "__main__":
    main()
