%% Runs supervisor scenarios on Erlang's own supervisor (or RabbitMQ's supervisor2) and prints their traces.
%%
%% Comes from the recorder of otp_traces.json (README.md here says what a scenario and a trace are). Added to
%% it: extra arguments of dynamic children, bursts, children that are supervisors, and that it waits longer for a
%% supervisor that is busy. Input: one Erlang term a line,
%%   {N, Module, {Strategy, Intensity, Period, AutoShutdown},
%%    [{Id, Restart, Significant, Shutdown, Type, {Starts, OnShutdown} | {tree, Module, Flags, Children}}], [Action]}.
%% Output: N|trace. Run: erlc otp_oracle.erl; erl -noshell -run otp_oracle main FILE
-module(otp_oracle).
-export([main/1, init/1, start_w/2, start_w/3, winit/3, log/2]).

main([F]) ->
    logger:remove_handler(default),
    logger:set_primary_config(level, error),
    ok = logger:add_handler(cap, ?MODULE, #{level => error}),
    {ok, Terms} = file:consult(F),
    lists:foreach(fun one/1, Terms), init:stop().

log(#{msg := {report, #{label := {supervisor, _}, report := R}}}, _) ->
    Ctx = proplists:get_value(errorContext, R),
    Off = proplists:get_value(offender, R),
    case ets:info(tr) of undefined -> ok; _ ->
      Id = proplists:get_value(id, Off),
      note(io_lib:format("R:~w:~w", [Ctx, Id])) end;
log(_, _) -> ok.

note(S) -> ets:insert(tr, {ets:update_counter(tr, n, 1), lists:flatten(S)}).

one({N, Mod, Flags, Specs, Acts}) ->
    ets:new(tr, [named_table, public, ordered_set]), ets:insert(tr, {n, 1000}),
    ets:new(cnt, [named_table, public]), ets:new(last, [named_table, public]),
    Me = self(),
    P = spawn(fun() -> process_flag(trap_exit, true), run(Mod, Flags, Specs, Acts), Me ! fin end),
    R = monitor(process, P),
    receive fin -> ok; {'DOWN', R, _, _, W} -> note(io_lib:format("HARNESS ~p",[W])) after 20000 -> note("HUNG"), exit(P, kill) end,
    demonitor(R, [flush]), timer:sleep(2),
    L = [S || {K, S} <- ets:tab2list(tr), K =/= n],
    io:format("~w|~s~n", [N, lists:join(" ", L)]),
    ets:delete(tr), ets:delete(cnt), ets:delete(last).

run(Mod, Flags, Specs, Acts) ->
    case Mod:start_link(?MODULE, {fl(Mod, Flags), [sp(Mod, S) || S <- Specs]}) of
        {ok, Sup} -> settle(Sup), show(Mod, Sup), acts(Mod, Sup, Acts);
        {error, E} -> note(io_lib:format("STARTERR:~s", [er(E)]))
    end.
er({shutdown, {failed_to_start_child, Id, _}}) -> io_lib:format("failed:~w", [Id]);
er({start_spec, _}) -> "start_spec";
er({bad_start_spec, _}) -> "bad_start_spec";
er(E) -> io_lib:format("~w", [E]).

fl(supervisor2, {S, I, P, _}) -> {S, I, P};
fl(_, {S, I, P, A}) -> #{strategy => S, intensity => I, period => P, auto_shutdown => A}.
sp(supervisor2, {Id, Re, _, Sh, Ty, Plan}) -> {Id, {?MODULE, start_w, [Id, Plan]}, Re, Sh, Ty, [?MODULE]};
sp(_, {Id, Re, Sg, Sh, Ty, Plan}) ->
    #{id => Id, start => {?MODULE, start_w, [Id, Plan]}, restart => Re, significant => Sg, shutdown => Sh, type => Ty}.
init({F, S}) -> {ok, {F, S}}.

start_w(Id, Plan) -> start_w(Id, Plan, none).
start_w(_, {tree, Mod, Flags, Specs}, none) ->
    Mod:start_link(?MODULE, {fl(Mod, Flags), [sp(Mod, S) || S <- Specs]});
start_w(Id, Plan, Extra) ->
    K = ets:update_counter(cnt, Id, 1, {Id, 0}),
    {Outs, Stub} = Plan,
    case (catch lists:nth(K, Outs)) of
        err -> {error, nope};
        ign -> ignore;
        raise -> error(oops);
        _ -> proc_lib:start_link(?MODULE, winit, [self(), {Id, name(Id, Extra)}, Stub])
    end.
name(Id, none) -> atom_to_list(Id);
name(Id, Extra) -> io_lib:format("~w:~w", [Id, Extra]).
winit(Parent, {Key, Id}, Stub) ->
    ets:insert(last, {Key, self()}),
    process_flag(trap_exit, true), note(["+", Id]),
    proc_lib:init_ack(Parent, {ok, self()}), loop(Parent, Id, Stub).
loop(Parent, Id, Stub) ->
    receive
        {'EXIT', _, _} when Stub =:= stub -> loop(Parent, Id, Stub);
        {'EXIT', _, _} when Stub =:= wrong -> note(["-", Id]), exit(wrong);
        {'EXIT', _, R} -> note(["-", Id]), exit(R);
        {do, R} -> note(["-", Id]), exit(R)
    end.

settle(Sup) -> settle(Sup, 3, 60).
settle(_, 0, _) -> ok;
settle(_, _, 0) -> ok;
settle(Sup, K, Max) -> % until it has answered at once three times
    timer:sleep(4),
    {Us, _} = timer:tc(fun() -> catch sys:get_state(Sup, 3000) end),
    settle(Sup, if Us > 15000 -> 3; true -> K - 1 end, Max - 1).

show(Mod, Sup) ->
    case catch Mod:which_children(Sup) of
        L when is_list(L) ->
            A = [io_lib:format("~w=~s", [Id, if is_pid(P) -> "up"; true -> atom_to_list(P) end]) || {Id, P, _, _} <- L],
            A2 = case L of [{undefined,_,_,_}|_] -> lists:sort(A); _ -> A end,
            C = Mod:count_children(Sup),
            note(["[", lists:join(",", A2), "]",
                  lists:join("/", [integer_to_list(proplists:get_value(Z, C)) || Z <- [specs, active, supervisors, workers]])]);
        _ -> ok
    end.
gone(Sup) -> receive {'EXIT', Sup, R} -> note(io_lib:format("SUPEXIT:~w", [R])), true after 0 -> not is_process_alive(Sup) end.

acts(_, Sup, []) ->
    case gone(Sup) of true -> ok; false ->
      exit(Sup, shutdown), receive {'EXIT', Sup, R} -> note(io_lib:format("SUPEXIT:~w", [R])) after 8000 -> note("NOEXIT") end end;
acts(Mod, Sup, [A | T]) ->
    case gone(Sup) of
        true -> ok;
        false ->
            note(io_lib:format("#~w", [element(1, A)])),
            case catch act(Mod, Sup, A) of {'EXIT', _} -> note("callfail"); _ -> ok end,
            settle(Sup), 
            case gone(Sup) of true -> ok; false -> show(Mod, Sup), acts(Mod, Sup, T) end
    end.

pid_of(Mod, Sup, K) when is_integer(K) ->
    Ps = lists:sort([P || {_, P, _, _} <- Mod:which_children(Sup), is_pid(P)]),
    case Ps of [] -> none; _ -> lists:nth((K rem length(Ps)) + 1, Ps) end;
pid_of(Mod, Sup, Id) ->
    Children = Mod:which_children(Sup),
    case lists:keyfind(Id, 1, Children) of
        {_, P, _, _} when is_pid(P) -> P;
        false when Children =:= []; element(1, hd(Children)) =/= undefined -> below(Id);
        _ -> none end.
%% A child of a child that is a supervisor.
below(Id) ->
    case ets:lookup(last, Id) of
        [{_, P}] -> case is_process_alive(P) of true -> P; false -> none end;
        [] -> none
    end.

act(Mod, Sup, {do, Id, R}) ->
    case pid_of(Mod, Sup, Id) of none -> note("nopid");
        P -> M = monitor(process, P),
             case R of kill -> exit(P, kill); _ -> P ! {do, R} end,
             receive {'DOWN', M, _, _, _} -> ok after 3000 -> note("nodown") end end;
act(_, _, {sleep, Ms}) -> timer:sleep(Ms);
act(Mod, Sup, {burst, Acts}) ->
    Found = [found(Mod, Sup, A) || A <- Acts],
    ok = sys:suspend(Sup),
    Sent = lists:append([send(Sup, A) || A <- Found]),
    ok = sys:resume(Sup),
    Answers = [gen_server:receive_response(S, 5000) || S <- Sent],
    settle(Sup),
    lists:foreach(fun answer/1, Answers);
act(Mod, Sup, {term, Id}) when is_integer(Id) -> res(Mod:terminate_child(Sup, pid_of(Mod, Sup, Id)));
act(Mod, Sup, {term, Id}) -> res(Mod:terminate_child(Sup, Id));
act(Mod, Sup, {restart, Id}) -> res(Mod:restart_child(Sup, Id));
act(Mod, Sup, {delete, Id}) -> res(Mod:delete_child(Sup, Id));
act(Mod, Sup, {startc, L}) when is_list(L) -> res(Mod:start_child(Sup, L));
act(Mod, Sup, {startc, S}) -> res(Mod:start_child(Sup, sp(Mod, S))).

%% A burst: all of it is in the supervisor's mailbox, in this order, before it handles any of it.
found(Mod, Sup, {do, Id, R}) -> {do, pid_of(Mod, Sup, Id), R};
found(Mod, Sup, {term, Id}) when is_integer(Id) -> {terminate_child, pid_of(Mod, Sup, Id)};
found(_, _, {term, Id}) -> {terminate_child, Id};
found(_, _, {restart, Id}) -> {restart_child, Id};
found(_, _, {delete, Id}) -> {delete_child, Id};
found(_, _, {startc, L}) when is_list(L) -> {start_child, L};
found(Mod, _, {startc, S}) -> {start_child, sp(Mod, S)}.

send(_, {do, none, _}) -> note("nopid"), [];
send(Sup, {do, P, R}) ->
    M = monitor(process, P),
    case R of kill -> exit(P, kill); _ -> P ! {do, R} end,
    receive {'DOWN', M, _, _, _} -> ok after 3000 -> note("nodown") end,
    told(Sup, P), [];
send(Sup, Request) -> [gen_server:send_request(Sup, Request)].

told(Sup, P) ->
    {messages, L} = process_info(Sup, messages),
    case [x || {'EXIT', Q, _} <- L, Q =:= P] of [] -> timer:sleep(1), told(Sup, P); _ -> ok end.

answer({reply, R}) -> res(R);
answer(_) -> note("callfail").

res(ok) -> note("=ok");
res({ok, P}) when is_pid(P) -> note("=ok,pid");
res({ok, undefined}) -> note("=ok,undefined");
res({error, {already_started, _}}) -> note("=error,already_started");
res({error, A}) when is_atom(A) -> note(io_lib:format("=error,~w", [A]));
res({error, _}) -> note("=error,other").
